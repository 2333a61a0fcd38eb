//! Encoding where parts of the text ("foreign" bytes: what a user wrote) must not become control tokens.
//!
//! The library cuts added tokens out of the text first and tokenizes what is left. This module does the
//! first step itself, by the library's rules (leftmost-longest; tokens with normalized=false in the raw
//! text, the others after normalization; lstrip, rstrip, single_word), but without the matches that are
//! control tokens and touch a foreign byte. Normalizer, pre-tokenizer, model and post-processor are the
//! library's, fed with the same pieces, so that a text whose foreign bytes hold no control token gets the
//! ids of plain encoding.
//!
//! A control token is an added token that is flagged special, or one written `<|...|>` (also with the
//! full-width bar): some published files do not flag the markers of roles and turns. Other added tokens (`<think>`,
//! runs of newlines) are words that a user may write and are left alone.

use std::collections::HashSet;
use std::sync::LazyLock;

use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder, MatchKind};
use regex::Regex;
use tokenizers::normalizer::Range;
use tokenizers::{
    AddedToken, Model, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer,
    Token, Tokenizer,
};

use crate::loaded::{Failure, Loaded};

/// Byte range `[begin, end)` of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub begin: usize,
    pub end: usize,
}

/// A piece between or at an added token: (its id or none, byte range).
type Piece = (Option<u32>, (usize, usize));

/// Finds added tokens of one kind (normalized or not), all occurrences.
type Finder = Option<DoubleArrayAhoCorasick<u32>>;

static STARTS_WITH_WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w").unwrap());

/// What guarded encoding knows about a tokenizer's added tokens.
pub struct Guard {
    raw: Finder,
    normalized: Finder,
    tokens: std::collections::HashMap<u32, AddedToken>,
    control_ids: HashSet<u32>,
    /// The texts of control tokens, which a model may also find in its own vocabulary.
    control_texts: HashSet<String>,
}

impl Guard {
    pub(crate) fn new(
        tokenizer: &Tokenizer,
        added: &[(u32, AddedToken)],
    ) -> Result<Self, Failure> {
        let mut raw = Vec::new();
        let mut normalized = Vec::new();
        let mut control_ids = HashSet::new();
        let mut control_texts = HashSet::new();
        for (id, token) in added {
            // The library's own record of what a token looks like in normalized text.
            let pattern = match token.normalized {
                true => tokenizer.id_to_token(*id).unwrap_or_else(|| token.content.clone()),
                false => token.content.clone(),
            };
            if is_control(token) {
                control_ids.insert(*id);
                control_texts.insert(token.content.clone());
                control_texts.insert(pattern.clone());
            }
            if token.normalized { &mut normalized } else { &mut raw }.push((pattern, *id));
        }
        Ok(Self {
            raw: finder(raw)?,
            normalized: finder(normalized)?,
            tokens: added.iter().cloned().collect(),
            control_ids,
            control_texts,
        })
    }

    /// Cuts `sentence` at added tokens. `forbidden(begin, end)`: the range touches foreign bytes.
    fn cut(
        &self,
        sentence: &str,
        finder: &Finder,
        forbidden: impl Fn(usize, usize) -> bool,
    ) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut done = 0;
        for (id, mut begin, mut end) in self.chosen(sentence, finder, forbidden) {
            let token = &self.tokens[&id];
            if token.single_word {
                let before = sentence[..begin].chars().next_back();
                let joined_left = before.is_some_and(|c| starts_with_word(c.encode_utf8(&mut [0; 4])));
                if joined_left || starts_with_word(&sentence[end..]) {
                    continue;
                }
            }
            if token.lstrip {
                begin = sentence[..begin].trim_end().len().max(done);
            }
            if token.rstrip {
                end = sentence.len() - sentence[end..].trim_start().len();
            }
            if done < begin {
                pieces.push((None, (done, begin)));
            }
            pieces.push((Some(id), (begin, end)));
            done = end;
        }
        if done < sentence.len() {
            pieces.push((None, (done, sentence.len())));
        }
        pieces
    }

    /// The leftmost-longest of the allowed matches, as (id, begin, end).
    fn chosen(
        &self,
        sentence: &str,
        finder: &Finder,
        forbidden: impl Fn(usize, usize) -> bool,
    ) -> Vec<(u32, usize, usize)> {
        let Some(finder) = finder else { return Vec::new() };
        let mut matches: Vec<_> = finder
            .find_overlapping_iter(sentence)
            .map(|m| (m.value(), m.start(), m.end()))
            .filter(|&(id, begin, end)| !(self.control_ids.contains(&id) && forbidden(begin, end)))
            .collect();
        matches.sort_by_key(|&(_, begin, end)| (begin, std::cmp::Reverse(end)));
        let mut taken_to = 0;
        matches.retain(|&(_, begin, end)| {
            let free = begin >= taken_to;
            if free {
                taken_to = end;
            }
            free
        });
        matches
    }

    /// Tokenizes one piece without added tokens. A model that finds a control token's text in its own
    /// vocabulary (Unigram and WordLevel do) is stopped from it where the text is foreign: the
    /// token is cut behind its first character and both parts are tokenized on their own.
    fn tokenize(
        &self,
        model: &impl Model,
        piece: &NormalizedString,
        foreign: &[Span],
    ) -> tokenizers::Result<Vec<Token>> {
        let text = piece.get();
        let mut result = Vec::new();
        let mut ranges = vec![(0, text.len())];  // still to do, the leftmost last
        while let Some((begin, end)) = ranges.pop() {
            let mut tokens = model.tokenize(&text[begin..end])?;
            for token in &mut tokens {
                token.offsets = (token.offsets.0 + begin, token.offsets.1 + begin);
            }
            let cuts: Vec<usize> = tokens
                .iter()
                .filter(|token| self.is_forged(token, piece, foreign))
                .flat_map(|token| cut_points(text, token.offsets))
                .filter(|&cut| begin < cut && cut < end)
                .collect();
            if cuts.is_empty() {
                // What is one character cannot be cut; it is left out.
                tokens.retain(|token| !self.is_forged(token, piece, foreign));
                result.append(&mut tokens);
                continue;
            }
            let mut right = end;
            for cut in cuts.into_iter().rev() {
                ranges.push((cut, right));
                right = cut;
            }
            ranges.push((begin, right));
        }
        Ok(result)
    }

    fn is_forged(&self, token: &Token, piece: &NormalizedString, foreign: &[Span]) -> bool {
        self.control_ids.contains(&token.id)
            && piece
                .get()
                .get(token.offsets.0..token.offsets.1)
                .is_some_and(|text| self.control_texts.contains(text))
            && touches(piece, foreign, token.offsets.0, token.offsets.1)
    }
}

impl Loaded {
    /// As encode(text), with `foreign` (ascending, disjoint, not empty) off limits for control tokens.
    pub fn encode_guarded(
        &self,
        text: &str,
        foreign: &[Span],
        add_special: bool,
    ) -> Result<Vec<u32>, Failure> {
        check_spans(text, foreign)?;
        if foreign.is_empty() {
            return self.encode(text, None, add_special);
        }
        let mut pieces: PreTokenizedString = text.into();
        let guard = &self.guard;
        pieces.split(|_, sentence| Ok(split(guard, sentence, &guard.raw, foreign)))?;
        pieces.split(|_, mut sentence| {
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                // The library goes on with what a failing normalizer leaves behind; so do we.
                let _ = normalizer.normalize(&mut sentence);
            }
            Ok(split(guard, sentence, &guard.normalized, foreign))
        })?;
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.tokenizer.get_model();
        pieces.tokenize(|piece| guard.tokenize(model, piece, foreign))?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
        let encoding = self.tokenizer.post_process(encoding, None, add_special)?;
        Ok(encoding.get_ids().to_vec())
    }
}

fn split(
    guard: &Guard,
    sentence: NormalizedString,
    finder: &Finder,
    foreign: &[Span],
) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    let forbidden = |begin, end| touches(&sentence, foreign, begin, end);
    guard
        .cut(sentence.get(), finder, forbidden)
        .into_iter()
        .map(|(id, (begin, end))| {
            let slice = sentence
                .slice(Range::Normalized(begin..end))
                .expect("added tokens start and end at characters");
            let tokens = id.map(|id| {
                let value = slice.get().to_owned();
                let size = value.len();
                vec![Token::new(id, value, (0, size))]
            });
            (slice, tokens)
        })
        .collect()
}

/// Whether the characters of the whole text that bytes `[begin, end)` of a normalized piece came from
/// include a foreign byte.
fn touches(piece: &NormalizedString, foreign: &[Span], begin: usize, end: usize) -> bool {
    let start = piece.offsets_original().0;
    match piece.convert_offsets(Range::Normalized(begin..end)) {
        Some(range) => overlaps(foreign, start + range.start, start + range.end),
        None => true,  // Unknown origin: take no chance.
    }
}

fn overlaps(spans: &[Span], begin: usize, end: usize) -> bool {
    let next = spans.partition_point(|span| span.end <= begin);
    spans.get(next).is_some_and(|span| span.begin < end)
}

fn is_control(token: &AddedToken) -> bool {
    let framed = |open: &str, close: &str| {
        token.content.len() > open.len() + close.len()
            && token.content.starts_with(open)
            && token.content.ends_with(close)
    };
    token.special || framed("<|", "|>") || framed("<\u{ff5c}", "\u{ff5c}>")
}

fn finder(patterns: Vec<(String, u32)>) -> Result<Finder, Failure> {
    if patterns.is_empty() {
        return Ok(None);
    }
    DoubleArrayAhoCorasickBuilder::new()
        .match_kind(MatchKind::Standard)
        .build_with_values(patterns)
        .map(Some)
        .map_err(|e| Failure::BadFile(format!("added_tokens: {e}")))
}

fn starts_with_word(text: &str) -> bool {
    STARTS_WITH_WORD.is_match(text)
}

/// Where to cut a forged token: behind its first character or, if it has no other, around it.
fn cut_points(text: &str, (begin, end): (usize, usize)) -> Vec<usize> {
    let first = text[begin..].chars().next().map_or(0, char::len_utf8);
    if begin + first < end {
        vec![begin + first]
    } else {
        vec![begin, end]
    }
}

fn check_spans(text: &str, spans: &[Span]) -> Result<(), Failure> {
    let mut done = 0;
    for span in spans {
        if span.begin < done || span.end <= span.begin || span.end > text.len() {
            return Err(Failure::BadSpan(format!(
                "span {}..{} of a text of {} bytes is out of range, empty or out of order",
                span.begin,
                span.end,
                text.len()
            )));
        }
        done = span.end;
    }
    Ok(())
}
