//! The coordinator's and the publisher's decisions: golden tables in `testdata/coordinator*.txt`, and random events.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod owner_table;
mod publisher_table;
mod random;
mod table;
