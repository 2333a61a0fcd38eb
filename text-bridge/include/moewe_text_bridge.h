/* The C interface of text-bridge: Hugging Face's `tokenizers` crate for C and C++.
 *
 * Ownership. A call that fills a MoeweText or MoeweIds gives its memory to the caller, who returns
 * it with moewe_text_free or moewe_ids_free (both accept the empty value). Handles are released
 * with their own free function. Arguments are only borrowed for the call.
 *
 * Errors. Fallible calls return a MoeweTextStatus; unless it is MOEWE_TEXT_OK, outputs are empty
 * and `error` (which may be NULL) holds a message for the caller to free. A panic inside the
 * library is caught and reported as MOEWE_TEXT_FAILED; nothing is ever thrown across this border.
 *
 * Threads. A MoeweTokenizer is immutable: any number of threads may use one. A MoeweDecodeStream
 * belongs to one thread at a time; it keeps its tokenizer alive.
 */
#ifndef MOEWE_TEXT_BRIDGE_H_
#define MOEWE_TEXT_BRIDGE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MoeweTokenizer MoeweTokenizer;
typedef struct MoeweDecodeStream MoeweDecodeStream;

typedef enum MoeweTextStatus {
  MOEWE_TEXT_OK = 0,
  MOEWE_TEXT_BAD_FILE = 1,   /* the bytes are no tokenizer.json that the library can load */
  MOEWE_TEXT_BAD_UTF8 = 2,   /* a text argument is not UTF-8 */
  MOEWE_TEXT_UNKNOWN_ID = 3, /* an id that the vocabulary does not have */
  MOEWE_TEXT_BAD_SPAN = 4,   /* spans that are out of range, empty or out of order */
  MOEWE_TEXT_FAILED = 5      /* the library returned an error or panicked */
} MoeweTextStatus;

/* UTF-8 (it may contain zero bytes), not terminated. */
typedef struct MoeweText {
  char* data;
  size_t size;
} MoeweText;

typedef struct MoeweIds {
  uint32_t* data;
  size_t size;
} MoeweIds;

/* Byte range [begin, end) of a text. */
typedef struct MoeweSpan {
  size_t begin;
  size_t end;
} MoeweSpan;

/* One entry of a tokenizer.json's added_tokens; `content` is borrowed from the tokenizer. */
typedef struct MoeweAddedToken {
  const char* content;
  size_t content_size;
  uint32_t id;
  uint8_t special;
  uint8_t normalized;
  uint8_t lstrip;
  uint8_t rstrip;
  uint8_t single_word;
} MoeweAddedToken;

void moewe_text_free(MoeweText text);
void moewe_ids_free(MoeweIds ids);

/* Loads a whole tokenizer.json. Truncation and padding that the file asks for apply only with
 * `apply_limits` != 0. BPE dropout is turned off: the same text always gives the same ids. */
MoeweTextStatus moewe_tokenizer_load(const uint8_t* json, size_t size, int apply_limits,
                                     MoeweTokenizer** tokenizer, MoeweText* error);
void moewe_tokenizer_free(MoeweTokenizer* tokenizer);

/* encode(text) or, if `pair` is not NULL, encode(text, pair). `add_special` runs the
 * post-processor. Special tokens that are written in the text are recognized. */
MoeweTextStatus moewe_tokenizer_encode(const MoeweTokenizer* tokenizer, const char* text,
                                       size_t size, const char* pair, size_t pair_size,
                                       int add_special, MoeweIds* ids, MoeweText* error);

/* As encode(text), but no byte inside of `foreign` (ascending, disjoint, not empty) becomes part of
 * a control token: one flagged special, or written <|...|>. With one span over the whole text
 * special tokens are off. Where no control token touches a span the ids are those of encode(text).
 */
MoeweTextStatus moewe_tokenizer_encode_guarded(const MoeweTokenizer* tokenizer, const char* text,
                                               size_t size, const MoeweSpan* foreign,
                                               size_t foreign_count, int add_special, MoeweIds* ids,
                                               MoeweText* error);

MoeweTextStatus moewe_tokenizer_decode(const MoeweTokenizer* tokenizer, const uint32_t* ids,
                                       size_t count, int skip_special, MoeweText* text,
                                       MoeweText* error);

/* The id, or -1. */
int64_t moewe_tokenizer_token_to_id(const MoeweTokenizer* tokenizer, const char* token,
                                    size_t size);
/* MOEWE_TEXT_UNKNOWN_ID if there is no such id. */
MoeweTextStatus moewe_tokenizer_id_to_token(const MoeweTokenizer* tokenizer, uint32_t id,
                                            MoeweText* token, MoeweText* error);
/* Tokens, added ones included. Ids may have gaps: the greatest can be larger than this. */
size_t moewe_tokenizer_vocab_size(const MoeweTokenizer* tokenizer);

/* Added tokens in the order of their ids; get returns 0 if `index` is out of range. */
size_t moewe_tokenizer_added_token_count(const MoeweTokenizer* tokenizer);
int moewe_tokenizer_added_token(const MoeweTokenizer* tokenizer, size_t index,
                                MoeweAddedToken* token);

/* Decodes one id at a time; pieces are whole characters. Ids that the vocabulary does not have give
 * no text (models pad their embeddings). */
MoeweTextStatus moewe_decode_stream_new(const MoeweTokenizer* tokenizer, int skip_special,
                                        MoeweDecodeStream** stream, MoeweText* error);
/* `*has_piece` = 0: nothing may be shown yet. */
MoeweTextStatus moewe_decode_stream_push(MoeweDecodeStream* stream, uint32_t id, int* has_piece,
                                         MoeweText* piece, MoeweText* error);
/* What decode() of all ids has beyond the pieces given out. */
MoeweTextStatus moewe_decode_stream_finish(MoeweDecodeStream* stream, MoeweText* rest,
                                           MoeweText* error);
void moewe_decode_stream_free(MoeweDecodeStream* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEWE_TEXT_BRIDGE_H_ */
