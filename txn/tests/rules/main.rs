//! The protocol's rules: codecs, the fold, check-backs, the dedup reader. Decision tables are in `testdata/`.

mod codecs;
mod dedup;
mod fold;
mod strategies;
mod tables;
