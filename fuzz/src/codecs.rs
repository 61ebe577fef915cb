//! Codecs of users' bodies.

use onceflow::codec::{Avro, Decode, Encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const FIRST: &str = r#"{"type": "record", "name": "Node", "fields": [
    {"name": "text", "type": "string"}, {"name": "number", "type": "int"},
    {"name": "gone", "type": {"type": "array", "items": "null"}},
    {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["One", "Two", "Three"]}},
    {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}]}]}"#;
const SECOND: &str = r#"{"type": "record", "name": "Node", "fields": [
    {"name": "number", "type": "long"}, {"name": "text", "type": ["null", "string"]},
    {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["Two", "One"], "default": "Two"}},
    {"name": "added", "type": {"type": "array", "items": "boolean"}, "default": []},
    {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}]}]}"#;
const CHAIN: &str =
    r#"{"type": "record", "name": "Chain", "fields": [{"name": "next", "type": {"type": "array", "items": "Chain"}}]}"#;
/// Bounds the values of one body.
const VALUES_MAX: usize = 10_000;

#[derive(PartialEq, Debug, Serialize, Deserialize)]
enum Kind {
    One,
    Two,
}

#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Node {
    number: i64,
    text: Option<String>,
    map: BTreeMap<String, Option<i64>>,
    kind: Kind,
    added: Vec<bool>,
    inner: Option<Inner>,
}

#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Inner {
    n: i64,
}

#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Chain {
    next: Vec<Chain>,
}

/// Bodies of the first schema, of the second, and with heads.
fn codecs() -> &'static [Avro<Node>; 3] {
    static CODECS: OnceLock<[Avro<Node>; 3]> = OnceLock::new();
    CODECS.get_or_init(|| {
        let second = || Avro::<Node>::bare(SECOND).expect("a schema").values_max(VALUES_MAX);
        let with_heads = Avro::new(SECOND).and_then(|codec| codec.reads(FIRST)).expect("schemas");
        [second().reads(FIRST).expect("a compatible schema"), second(), with_heads.values_max(VALUES_MAX)]
    })
}

/// An Avro body.
pub fn avro(bytes: &[u8]) {
    avro_readers(bytes);
    static CHAIN_CODEC: OnceLock<Avro<Chain>> = OnceLock::new();
    let codec = CHAIN_CODEC.get_or_init(|| Avro::bare(CHAIN).expect("a schema").values_max(VALUES_MAX));
    if let Ok(chain) = codec.decode(bytes) {
        let mut body = vec![];
        codec.encode(&chain, &mut body).expect("a value that was read");
        assert_eq!(codec.decode(&body).expect("and written"), chain);
    }
}

/// How many of the codecs read an Avro body. What is read can be written and read again.
pub fn avro_readers(bytes: &[u8]) -> usize {
    let [_, second, _] = codecs();
    let nodes: Vec<Node> = codecs().iter().filter_map(|codec| codec.decode(bytes).ok()).collect();
    for node in &nodes {
        let mut body = vec![];
        second.encode(node, &mut body).expect("a value that was read");
        assert_eq!(second.decode(&body).expect("and written"), *node);
    }
    nodes.len()
}
