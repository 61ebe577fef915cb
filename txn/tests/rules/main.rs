//! The protocol's rules: codecs, the fold, check-backs, the dedup reader. Decision tables are in `testdata/`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data is small")]

mod codecs;
mod dedup;
mod fold;
mod strategies;
mod tables;
