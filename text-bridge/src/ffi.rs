//! The C border: see include/moewe_text_bridge.h for the contract of every function.
//!
//! All unsafe code is here. Each fallible call runs inside `guard`, which catches panics.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::slice;
use std::sync::{Arc, Once};

use crate::guarded::Span;
use crate::loaded::{Failure, Loaded};
use crate::stream::DecodeStream;

pub struct MoeweTokenizer(Arc<Loaded>);
pub struct MoeweDecodeStream(DecodeStream);

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Status {
    Ok = 0,
    BadFile = 1,
    BadUtf8 = 2,
    UnknownId = 3,
    BadSpan = 4,
    Failed = 5,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MoeweText {
    pub data: *mut u8,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MoeweIds {
    pub data: *mut u32,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MoeweSpan {
    pub begin: usize,
    pub end: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MoeweAddedToken {
    pub content: *const u8,
    pub content_size: usize,
    pub id: u32,
    pub special: u8,
    pub normalized: u8,
    pub lstrip: u8,
    pub rstrip: u8,
    pub single_word: u8,
}

fn give_text(text: String) -> MoeweText {
    if text.is_empty() {
        return MoeweText { data: std::ptr::null_mut(), size: 0 };
    }
    let bytes = Box::leak(text.into_bytes().into_boxed_slice());
    MoeweText { data: bytes.as_mut_ptr(), size: bytes.len() }
}

fn give_ids(ids: Vec<u32>) -> MoeweIds {
    if ids.is_empty() {
        return MoeweIds { data: std::ptr::null_mut(), size: 0 };
    }
    let ids = Box::leak(ids.into_boxed_slice());
    MoeweIds { data: ids.as_mut_ptr(), size: ids.len() }
}

/// The bytes behind a borrowed pointer; a null pointer is an empty range.
unsafe fn borrow<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

unsafe fn borrow_text<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(borrow(data, size)).map_err(|e| {
        Failure::BadUtf8(format!("text is not UTF-8 at byte {}", e.valid_up_to()))
    })
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Panics that `guard` catches are reported as errors, so they must not print as well.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let outer = take_hook();
        set_hook(Box::new(move |info| {
            if !INSIDE.with(Cell::get) {
                outer(info);
            }
        }));
    });
}

/// Runs `body`; turns its failure or panic into a status and a message.
unsafe fn guard(error: *mut MoeweText, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    quiet_panics();
    let was_inside = INSIDE.with(|inside| inside.replace(true));
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_else(|| "panic".to_string());
        Err(Failure::Failed(message))
    });
    INSIDE.with(|inside| inside.set(was_inside));
    let (status, message) = match result {
        Ok(()) => (Status::Ok, String::new()),
        Err(Failure::BadFile(m)) => (Status::BadFile, m),
        Err(Failure::BadUtf8(m)) => (Status::BadUtf8, m),
        Err(Failure::UnknownId(m)) => (Status::UnknownId, m),
        Err(Failure::BadSpan(m)) => (Status::BadSpan, m),
        Err(Failure::Failed(m)) => (Status::Failed, m),
    };
    if !error.is_null() {
        error.write(give_text(message));
    }
    status
}

/// # Safety
/// `text` came from this library and was not freed.
#[no_mangle]
pub unsafe extern "C" fn moewe_text_free(text: MoeweText) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}

/// # Safety
/// `ids` came from this library and were not freed.
#[no_mangle]
pub unsafe extern "C" fn moewe_ids_free(ids: MoeweIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// # Safety
/// `json` has `size` bytes; `tokenizer` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_load(
    json: *const u8,
    size: usize,
    apply_limits: i32,
    tokenizer: *mut *mut MoeweTokenizer,
    error: *mut MoeweText,
) -> Status {
    tokenizer.write(std::ptr::null_mut());
    guard(error, || {
        let loaded = Loaded::from_json(borrow(json, size), apply_limits != 0).map_err(|e| match e {
            Failure::Failed(m) => Failure::BadFile(m),
            other => other,
        })?;
        tokenizer.write(Box::into_raw(Box::new(MoeweTokenizer(Arc::new(loaded)))));
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is null or came from moewe_tokenizer_load and was not freed.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_free(tokenizer: *mut MoeweTokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// Pointers have the sizes given; `ids` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_encode(
    tokenizer: *const MoeweTokenizer,
    text: *const u8,
    size: usize,
    pair: *const u8,
    pair_size: usize,
    add_special: i32,
    ids: *mut MoeweIds,
    error: *mut MoeweText,
) -> Status {
    ids.write(give_ids(Vec::new()));
    guard(error, || {
        let text = borrow_text(text, size)?;
        let pair = match pair.is_null() {
            true => None,
            false => Some(borrow_text(pair, pair_size)?),
        };
        ids.write(give_ids((*tokenizer).0.encode(text, pair, add_special != 0)?));
        Ok(())
    })
}

/// # Safety
/// Pointers have the sizes given; `ids` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_encode_guarded(
    tokenizer: *const MoeweTokenizer,
    text: *const u8,
    size: usize,
    foreign: *const MoeweSpan,
    foreign_count: usize,
    add_special: i32,
    ids: *mut MoeweIds,
    error: *mut MoeweText,
) -> Status {
    ids.write(give_ids(Vec::new()));
    guard(error, || {
        let text = borrow_text(text, size)?;
        let spans: Vec<Span> = borrow(foreign, foreign_count)
            .iter()
            .map(|span| Span { begin: span.begin, end: span.end })
            .collect();
        ids.write(give_ids((*tokenizer).0.encode_guarded(text, &spans, add_special != 0)?));
        Ok(())
    })
}

/// # Safety
/// Pointers have the sizes given; `text` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_decode(
    tokenizer: *const MoeweTokenizer,
    ids: *const u32,
    count: usize,
    skip_special: i32,
    text: *mut MoeweText,
    error: *mut MoeweText,
) -> Status {
    text.write(give_text(String::new()));
    guard(error, || {
        text.write(give_text((*tokenizer).0.decode(borrow(ids, count), skip_special != 0)?));
        Ok(())
    })
}

/// # Safety
/// `token` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_token_to_id(
    tokenizer: *const MoeweTokenizer,
    token: *const u8,
    size: usize,
) -> i64 {
    let mut id = -1;
    guard(std::ptr::null_mut(), || {
        let token = borrow_text(token, size)?;
        id = (*tokenizer).0.token_to_id(token).map_or(-1, i64::from);
        Ok(())
    });
    id
}

/// # Safety
/// `token` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_id_to_token(
    tokenizer: *const MoeweTokenizer,
    id: u32,
    token: *mut MoeweText,
    error: *mut MoeweText,
) -> Status {
    token.write(give_text(String::new()));
    guard(error, || {
        let found = (*tokenizer).0.id_to_token(id);
        let found = found.ok_or_else(|| Failure::UnknownId(format!("no token has the id {id}")))?;
        token.write(give_text(found));
        Ok(())
    })
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_vocab_size(tokenizer: *const MoeweTokenizer) -> usize {
    let mut size = 0;
    guard(std::ptr::null_mut(), || {
        size = (*tokenizer).0.vocab_size();
        Ok(())
    });
    size
}

/// # Safety
/// `tokenizer` is valid.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_added_token_count(tokenizer: *const MoeweTokenizer) -> usize {
    (*tokenizer).0.added_tokens().len()
}

/// # Safety
/// `tokenizer` is valid; `token` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_tokenizer_added_token(
    tokenizer: *const MoeweTokenizer,
    index: usize,
    token: *mut MoeweAddedToken,
) -> i32 {
    let Some((id, added)) = (*tokenizer).0.added_tokens().get(index) else { return 0 };
    token.write(MoeweAddedToken {
        content: added.content.as_ptr(),
        content_size: added.content.len(),
        id: *id,
        special: added.special.into(),
        normalized: added.normalized.into(),
        lstrip: added.lstrip.into(),
        rstrip: added.rstrip.into(),
        single_word: added.single_word.into(),
    });
    1
}

/// # Safety
/// `tokenizer` is valid; `stream` and, unless null, `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_decode_stream_new(
    tokenizer: *const MoeweTokenizer,
    skip_special: i32,
    stream: *mut *mut MoeweDecodeStream,
    error: *mut MoeweText,
) -> Status {
    stream.write(std::ptr::null_mut());
    guard(error, || {
        let new = DecodeStream::new((*tokenizer).0.clone(), skip_special != 0);
        stream.write(Box::into_raw(Box::new(MoeweDecodeStream(new))));
        Ok(())
    })
}

/// # Safety
/// `stream` is valid and not in use elsewhere; outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_decode_stream_push(
    stream: *mut MoeweDecodeStream,
    id: u32,
    has_piece: *mut i32,
    piece: *mut MoeweText,
    error: *mut MoeweText,
) -> Status {
    has_piece.write(0);
    piece.write(give_text(String::new()));
    guard(error, || {
        if let Some(text) = (*stream).0.push(id) {
            has_piece.write(1);
            piece.write(give_text(text));
        }
        Ok(())
    })
}

/// # Safety
/// `stream` is valid and not in use elsewhere; outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn moewe_decode_stream_finish(
    stream: *mut MoeweDecodeStream,
    rest: *mut MoeweText,
    error: *mut MoeweText,
) -> Status {
    rest.write(give_text(String::new()));
    guard(error, || {
        rest.write(give_text((*stream).0.finish()?));
        Ok(())
    })
}

/// # Safety
/// `stream` is null or came from moewe_decode_stream_new and was not freed.
#[no_mangle]
pub unsafe extern "C" fn moewe_decode_stream_free(stream: *mut MoeweDecodeStream) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}
