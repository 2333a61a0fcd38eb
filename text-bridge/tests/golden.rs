//! Every field of the golden cases, also those that moewe itself does not ask for (offsets, masks,
//! what a normalizer or pre-tokenizer gives alone). `tests/golden/text/README.md` says what they mean.
//!
//! The mini tokenizers are part of the repository; the published ones are read from
//! `$MOEWE_SHARED/golden/text` (by default `../shared` beside the checkout) where that exists.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moewe_text_bridge::loaded::Loaded;
use moewe_text_bridge::stream::DecodeStream;
use serde_json::{json, Value};
use tokenizers::{
    Encoding, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Tokenizer,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn shared() -> PathBuf {
    std::env::var_os("MOEWE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from)
}

fn read_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{}", path.display());
    lines
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Compares what a case has under `key`, if it has it.
fn check(case: &Value, key: &str, actual: impl FnOnce() -> Value) {
    if let Some(expected) = case.get(key) {
        assert_eq!(&actual(), expected, "{key}");
    }
}

/// The fields that an Encoding answers; `case` may be a whole case or its `pair`.
fn check_encoding(case: &Value, encoding: &Encoding) {
    check(case, "ids", || json!(encoding.get_ids()));
    check(case, "tokens", || json!(encoding.get_tokens()));
    check(case, "offsets", || json!(encoding.get_offsets()));
    check(case, "type_ids", || json!(encoding.get_type_ids()));
    check(case, "special_tokens_mask", || json!(encoding.get_special_tokens_mask()));
    check(case, "attention_mask", || json!(encoding.get_attention_mask()));
    check(case, "sequence_ids", || json!(encoding.get_sequence_ids()));
}

/// What truncation cuts off. encode() stops tokenizing once it has enough, so the whole text is encoded
/// without limits first and cut by the post-processor.
fn check_overflowing(case: &Value, tokenizer: &Tokenizer, text: &str) {
    check(case, "overflowing", || {
        let mut unlimited = tokenizer.clone();
        unlimited.with_truncation(None).unwrap();
        let whole = unlimited.encode_char_offsets(text, false).unwrap();
        let cut = tokenizer.post_process(whole, None, true).unwrap();
        cut.get_overflowing().iter().map(|more| json!(more.get_ids())).collect()
    });
}

/// What the normalizer alone makes of a text.
fn normalized(tokenizer: &Tokenizer, text: &str) -> String {
    let mut text = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer.normalize(&mut text).unwrap();
    }
    text.get().to_owned()
}

/// What the pre-tokenizer alone makes of a normalized text.
fn pre_tokens(tokenizer: &Tokenizer, text: &str) -> Value {
    let mut pieces = PreTokenizedString::from(text);
    tokenizer.get_pre_tokenizer().unwrap().pre_tokenize(&mut pieces).unwrap();
    pieces
        .get_splits(OffsetReferential::Original, OffsetType::Char)
        .into_iter()
        .map(|(piece, offsets, _)| json!([piece, offsets]))
        .collect()
}

fn check_text(tokenizer: &Tokenizer, loaded: &Loaded, case: &Value, text: &str) {
    match case.get("pair") {
        Some(Value::String(pair)) => {
            let encoding = tokenizer.encode_char_offsets((text, pair.as_str()), true).unwrap();
            check_encoding(case, &encoding);
            check(case, "ids", || json!(loaded.encode(text, Some(pair), true).unwrap()));
            return;
        }
        Some(pair) => {
            let second = pair["text"].as_str().unwrap();
            let encoding = tokenizer.encode_char_offsets((text, second), true).unwrap();
            check_encoding(pair, &encoding);
            check(pair, "ids", || json!(loaded.encode(text, Some(second), true).unwrap()));
        }
        None => {}
    }
    check_encoding(case, &tokenizer.encode_char_offsets(text, true).unwrap());
    check_overflowing(case, tokenizer, text);
    check(case, "ids", || json!(loaded.encode(text, None, true).unwrap()));
    check(case, "ids_no_special", || json!(loaded.encode(text, None, false).unwrap()));
    check(case, "ids_no_special", || json!(loaded.encode_guarded(text, &[], false).unwrap()));
    let plain = normalized(tokenizer, text);
    check(case, "normalized", || json!(plain));
    check(case, "pre_tokens", || pre_tokens(tokenizer, &plain));
}

fn check_case(tokenizer: &Tokenizer, loaded: &Loaded, case: &Value) {
    let ids = ids(&case["ids"]);
    if let Some(text) = case.get("text") {
        check_text(tokenizer, loaded, case, text.as_str().unwrap());
    } else {
        check(case, "tokens", || {
            ids.iter().map(|&id| json!(loaded.id_to_token(id).unwrap())).collect()
        });
    }
    if case.get("library_panics").is_none() {
        check(case, "decoded", || json!(loaded.decode(&ids, false).unwrap()));
        check(case, "decoded_skip_special", || json!(loaded.decode(&ids, true).unwrap()));
    }
}

/// Runs `body` for each case and names all that fail.
fn for_each_case(name: &str, cases: &[Value], failed: &mut Vec<String>, body: impl Fn(&Value)) {
    for case in cases {
        let run = std::panic::AssertUnwindSafe(|| body(case));
        if std::panic::catch_unwind(run).is_err() {
            failed.push(format!("{name} {}", case["id"]));
        }
    }
}

#[test]
fn mini_tokenizers() {
    let folder = root().join("tests/golden/text/mini");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".json").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() > 100);
    let mut failed = Vec::new();
    for name in names {
        let file = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
        let tokenizer = Tokenizer::from_bytes(&file).unwrap();
        let loaded = Loaded::from_json(&file, true).unwrap();
        let cases = read_lines(&folder.join(format!("{name}.cases.jsonl")));
        for_each_case(&name, &cases, &mut failed, |case| check_case(&tokenizer, &loaded, case));
    }
    assert!(failed.is_empty(), "{} cases failed: {failed:?}", failed.len());
}

fn check_stream(loaded: &Arc<Loaded>, case: &Value) {
    let skip_special = case["skip_special"].as_bool().unwrap();
    let mut stream = DecodeStream::new(loaded.clone(), skip_special);
    let pieces: Vec<_> = ids(&case["ids"]).into_iter().map(|id| stream.push(id)).collect();
    assert_eq!(json!(pieces), case["pieces"]);
    let whole: String = pieces.into_iter().flatten().collect::<String>() + &stream.finish().unwrap();
    assert_eq!(json!(whole), case["full"]);
}

#[test]
fn published_tokenizers() {
    let folder = shared().join("golden/text/tokenizers");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no {}", folder.display());
        return;
    };
    let mut failed = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let zipped = std::fs::File::open(path.join("tokenizer.json.gz")).unwrap();
        let mut file = Vec::new();
        flate2::read::GzDecoder::new(zipped).read_to_end(&mut file).unwrap();
        let tokenizer = Tokenizer::from_bytes(&file).unwrap();
        let loaded = Arc::new(Loaded::from_json(&file, false).unwrap());
        for kind in ["cases", "pairs"] {
            let cases = read_lines(&path.join(format!("{kind}.jsonl")));
            for_each_case(name, &cases, &mut failed, |case| check_case(&tokenizer, &loaded, case));
        }
        let streams = read_lines(&path.join("streams.jsonl"));
        for_each_case(name, &streams, &mut failed, |case| check_stream(&loaded, case));
    }
    assert!(failed.is_empty(), "{} cases failed: {failed:?}", failed.len());
}
