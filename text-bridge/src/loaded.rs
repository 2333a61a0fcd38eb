//! A tokenizer.json, checked and ready to encode and decode. Immutable, shared between threads.

use serde_json::Value;
use tokenizers::utils::parallelism::set_parallelism;
use tokenizers::{AddedToken, ModelWrapper, PaddingStrategy, Tokenizer};

use crate::guarded::Guard;

/// The longest padding that a file may ask for, in tokens. Far beyond any model's context; it keeps a
/// hostile file from allocating without limit.
const MAX_PADDING: usize = 1 << 24;

/// What can go wrong; the C interface turns each into a status.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    BadFile(String),
    BadUtf8(String),
    UnknownId(String),
    BadSpan(String),
    Failed(String),
}

impl From<tokenizers::Error> for Failure {
    fn from(error: tokenizers::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

pub struct Loaded {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) guard: Guard,
    added: Vec<(u32, AddedToken)>,
}

impl Loaded {
    /// `apply_limits`: keep the truncation and padding of the file.
    pub fn from_json(json: &[u8], apply_limits: bool) -> Result<Self, Failure> {
        // One text at a time: worker threads of the library would only stand around.
        set_parallelism(false);
        let mut tokenizer = parse(json)?;
        if apply_limits {
            check_padding(&tokenizer)?;
        } else {
            tokenizer.with_padding(None);
            tokenizer.with_truncation(None)?;
        }
        if let ModelWrapper::BPE(bpe) = tokenizer.get_model() {
            if bpe.dropout.is_some() {
                let mut steady = bpe.clone();
                steady.dropout = None;
                tokenizer.with_model(steady);
            }
        }
        let mut added: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
        added.sort_by_key(|(id, _)| *id);
        let guard = Guard::new(&tokenizer, &added)?;
        Ok(Self { tokenizer, guard, added })
    }

    pub fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        add_special: bool,
    ) -> Result<Vec<u32>, Failure> {
        // encode_fast leaves out offsets, which nobody asks for here.
        let encoding = match pair {
            None => self.tokenizer.encode_fast(text, add_special)?,
            Some(pair) => self.tokenizer.encode_fast((text, pair), add_special)?,
        };
        Ok(encoding.get_ids().to_vec())
    }

    /// Every id must be in the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Failure> {
        for &id in ids {
            if self.id_to_token(id).is_none() {
                return Err(Failure::UnknownId(format!("no token has the id {id}")));
            }
        }
        self.decode_known(ids, skip_special)
    }

    /// Ids that the vocabulary does not have give no text.
    pub(crate) fn decode_known(&self, ids: &[u32], skip_special: bool) -> Result<String, Failure> {
        Ok(self.tokenizer.decode(ids, skip_special)?)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// In the order of their ids.
    pub fn added_tokens(&self) -> &[(u32, AddedToken)] {
        &self.added
    }
}

/// The library wants every flag of an added token spelled out; files that leave some to their defaults
/// are read, too.
fn parse(json: &[u8]) -> Result<Tokenizer, Failure> {
    let error = match Tokenizer::from_bytes(json) {
        Ok(tokenizer) => return Ok(tokenizer),
        Err(error) => Failure::BadFile(error.to_string()),
    };
    let Ok(mut file) = serde_json::from_slice::<Value>(json) else { return Err(error) };
    if !fill_added_tokens(&mut file) {
        return Err(error);
    }
    serde_json::from_value(file).map_err(|e| Failure::BadFile(e.to_string()))
}

/// Gives added tokens the flags that they lack, as `AddedToken::from` would; false if none lacks any.
fn fill_added_tokens(file: &mut Value) -> bool {
    let Some(tokens) = file.get_mut("added_tokens").and_then(Value::as_array_mut) else {
        return false;
    };
    let mut filled = false;
    for token in tokens.iter_mut().filter_map(Value::as_object_mut) {
        let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
        for (flag, default) in [
            ("special", false),
            ("single_word", false),
            ("lstrip", false),
            ("rstrip", false),
            ("normalized", !special),
        ] {
            filled |= !token.contains_key(flag);
            token.entry(flag).or_insert(Value::Bool(default));
        }
    }
    filled
}

fn check_padding(tokenizer: &Tokenizer) -> Result<(), Failure> {
    let Some(padding) = tokenizer.get_padding() else { return Ok(()) };
    let fixed = match padding.strategy {
        PaddingStrategy::Fixed(size) => size,
        PaddingStrategy::BatchLongest => 0,
    };
    if fixed.max(padding.pad_to_multiple_of.unwrap_or(0)) > MAX_PADDING {
        return Err(Failure::BadFile(format!("padding to more than {MAX_PADDING} tokens")));
    }
    Ok(())
}
