//! The C border: panics become errors, what is given out can be given back, null and empty are taken.

use std::ptr::null_mut;

use moewe_text_bridge::ffi::*;

fn mini(name: &str) -> Vec<u8> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read(root.join("tests/golden/text/mini").join(name)).unwrap()
}

fn empty_text() -> MoeweText {
    MoeweText { data: null_mut(), size: 0 }
}

fn empty_ids() -> MoeweIds {
    MoeweIds { data: null_mut(), size: 0 }
}

unsafe fn take(text: MoeweText) -> String {
    let copy = match text.data.is_null() {
        true => String::new(),
        false => {
            let bytes = std::slice::from_raw_parts(text.data, text.size);
            String::from_utf8(bytes.to_vec()).unwrap()
        }
    };
    moewe_text_free(text);
    copy
}

unsafe fn load(json: &[u8]) -> Result<*mut MoeweTokenizer, String> {
    let mut tokenizer = null_mut();
    let mut error = empty_text();
    let status = moewe_tokenizer_load(json.as_ptr(), json.len(), 0, &mut tokenizer, &mut error);
    let message = take(error);
    assert_eq!(status == Status::Ok, !tokenizer.is_null());
    assert_eq!(status == Status::Ok, message.is_empty());
    if status == Status::Ok { Ok(tokenizer) } else { Err(message) }
}

#[test]
fn a_panic_of_the_library_is_an_error() {
    unsafe {
        // Its Strip decoder panics on pieces that are shorter than what it strips.
        let tokenizer = load(&mini("dec_strip.json")).unwrap();
        let ids = [336, 336, 339];
        let mut text = empty_text();
        let mut error = empty_text();
        let status =
            moewe_tokenizer_decode(tokenizer, ids.as_ptr(), ids.len(), 0, &mut text, &mut error);
        assert_eq!(status, Status::Failed);
        assert!(text.data.is_null());
        assert!(!take(error).is_empty());

        // In a stream it is an error of that id; a message is optional.
        let mut stream = null_mut();
        assert_eq!(moewe_decode_stream_new(tokenizer, 0, &mut stream, null_mut()), Status::Ok);
        let mut has_piece = 7;
        let mut piece = empty_text();
        let status =
            moewe_decode_stream_push(stream, 336, &mut has_piece, &mut piece, null_mut());
        assert_eq!(status, Status::Failed);
        assert_eq!(has_piece, 0);
        // The stream keeps its tokenizer alive.
        moewe_tokenizer_free(tokenizer);
        moewe_decode_stream_finish(stream, &mut piece, &mut error);
        take(piece);
        take(error);
        moewe_decode_stream_free(stream);
    }
}

#[test]
fn texts_and_ids_cross_and_come_back() {
    unsafe {
        let tokenizer = load(&mini("post_template.json")).unwrap();
        let mut ids = empty_ids();
        let mut error = empty_text();
        let text = "the \0 token";
        let status = moewe_tokenizer_encode(
            tokenizer, text.as_ptr(), text.len(), null_mut(), 0, 1, &mut ids, &mut error);
        assert_eq!(status, Status::Ok);
        assert!(ids.size > 3);
        moewe_ids_free(ids);

        let status = moewe_tokenizer_encode(
            tokenizer, null_mut(), 0, null_mut(), 0, 0, &mut ids, &mut error);
        assert_eq!(status, Status::Ok);
        assert!(ids.data.is_null());
        moewe_ids_free(ids);

        let broken = b"ab\xff";
        let status = moewe_tokenizer_encode(
            tokenizer, broken.as_ptr(), broken.len(), null_mut(), 0, 0, &mut ids, &mut error);
        assert_eq!(status, Status::BadUtf8);
        assert!(take(error).contains("byte 2"));

        let count = moewe_tokenizer_added_token_count(tokenizer);
        assert_eq!(count, 5);
        let mut token = std::mem::MaybeUninit::uninit();
        assert_eq!(moewe_tokenizer_added_token(tokenizer, 1, token.as_mut_ptr()), 1);
        let token = token.assume_init();
        assert_eq!(std::slice::from_raw_parts(token.content, token.content_size), b"<s>");
        assert_eq!((token.id, token.special, token.normalized), (1, 1, 0));
        assert_eq!(moewe_tokenizer_added_token(tokenizer, count, null_mut()), 0);
        assert_eq!(moewe_tokenizer_token_to_id(tokenizer, b"<s>".as_ptr(), 3), 1);
        assert_eq!(moewe_tokenizer_token_to_id(tokenizer, b"<sx".as_ptr(), 3), -1);
        moewe_tokenizer_free(tokenizer);
    }
}

#[test]
fn broken_files_are_errors() {
    unsafe {
        let good = mini("model_wordpiece.json");
        for cut in (0..good.len()).step_by(97) {
            assert!(load(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(load(&[b'['; 100_000]).is_err());
        moewe_tokenizer_free(null_mut());
        moewe_decode_stream_free(null_mut());
    }
}

#[test]
fn a_file_cannot_ask_for_endless_padding() {
    unsafe {
        let text = String::from_utf8(mini("pad_fixed.json")).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["padding"]["strategy"] = serde_json::json!({"Fixed": 1u64 << 60});
        let json = value.to_string();
        let mut tokenizer = null_mut();
        let mut error = empty_text();
        let status =
            moewe_tokenizer_load(json.as_ptr(), json.len(), 1, &mut tokenizer, &mut error);
        assert_eq!(status, Status::BadFile);
        assert!(take(error).contains("padding"));
        moewe_tokenizer_free(load(json.as_bytes()).unwrap());  // unless it is ignored
    }
}

#[test]
fn dropout_of_training_is_off() {
    unsafe {
        let text = String::from_utf8(mini("rx_gpt2.json")).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["model"]["dropout"] = serde_json::json!(0.9);
        let encode = |json: &str| {
            let tokenizer = load(json.as_bytes()).unwrap();
            let mut ids = empty_ids();
            let text = "the lowest newest widest tokens tokenization";
            moewe_tokenizer_encode(
                tokenizer, text.as_ptr(), text.len(), null_mut(), 0, 0, &mut ids, null_mut());
            let copy = std::slice::from_raw_parts(ids.data, ids.size).to_vec();
            moewe_ids_free(ids);
            moewe_tokenizer_free(tokenizer);
            copy
        };
        assert_eq!(encode(&value.to_string()), encode(&text));
    }
}
