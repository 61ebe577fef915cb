use super::written::UNION_LEVELS_MAX;
use super::*;
use crate::processor::ErrorPolicy;
use crate::testing::TestDriver;
use crate::topology::StreamBuilder;
use onceflow_types::ErrorKind;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;

const EVENT: &str = r#"{"type": "record", "name": "Event", "namespace": "shop", "fields": [
    {"name": "open", "type": "boolean"}, {"name": "small", "type": "int"}, {"name": "large", "type": "long"},
    {"name": "half", "type": "float"}, {"name": "whole", "type": "double"}, {"name": "text", "type": "string"},
    {"name": "maybe", "type": ["null", "string"], "default": null},
    {"name": "list", "type": {"type": "array", "items": "long"}},
    {"name": "map", "type": {"type": "map", "values": "int"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["Card", "Cash"]}},
    {"name": "next", "type": ["null", "Event"], "default": null}]}"#;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Kind {
    Card,
    Cash,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Event {
    open: bool,
    small: i32,
    large: i64,
    half: f32,
    whole: f64,
    text: String,
    maybe: Option<String>,
    list: Vec<i64>,
    map: BTreeMap<String, i32>,
    kind: Kind,
    next: Option<Box<Event>>,
}

fn event() -> impl Strategy<Value = Event> {
    let numbers = (any::<bool>(), any::<i32>(), any::<i64>(), -1e30f32..1e30, -1e300..1e300);
    let rest =
        (".*", proptest::option::of(".*"), vec(any::<i64>(), 0..5), btree_map(".*", any::<i32>(), 0..4), any::<bool>());
    let leaf = (numbers, rest).prop_map(|((open, small, large, half, whole), (text, maybe, list, map, card))| {
        let kind = if card { Kind::Card } else { Kind::Cash };
        Event { open, small, large, half, whole, text, maybe, list, map, kind, next: None }
    });
    vec(leaf, 1..4).prop_map(|events| {
        let chained = |next: Option<Box<Event>>, event: Event| Some(Box::new(Event { next, ..event }));
        *events.into_iter().fold(None, chained).unwrap()
    })
}

fn encoded<T: Serialize>(codec: &Avro<T>, value: &T) -> Vec<u8> {
    let mut body = vec![];
    codec.encode(value, &mut body).unwrap();
    body
}

/// The text of the record error that a body is.
fn refused<T: DeserializeOwned + fmt::Debug>(codec: &Avro<T>, body: &[u8]) -> String {
    let error = codec.decode(body).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record, "{error:?}");
    error.report()
}

proptest! {
    #[test]
    fn values_come_back(event in event()) {
        for codec in [Avro::new(EVENT).unwrap(), Avro::bare(EVENT).unwrap()] {
            prop_assert_eq!(codec.decode(&encoded(&codec, &event)).unwrap(), event.clone());
        }
    }

    /// A body that is cut off anywhere is none; the crate alone takes some for values with nulls.
    #[test]
    fn a_body_that_is_cut_off_or_too_long_is_a_record_error(event in event(), cut: prop::sample::Index) {
        for codec in [Avro::new(EVENT).unwrap(), Avro::bare(EVENT).unwrap()] {
            let mut body = encoded(&codec, &event);
            refused(&codec, &body[..cut.index(body.len())]);
            body.push(0);
            prop_assert!(refused(&codec, &body).contains("bytes behind the value"));
        }
    }

    #[test]
    fn random_and_damaged_bytes_are_values_or_record_errors(
        event in event(), place: prop::sample::Index, byte: u8, random in vec(any::<u8>(), 0..200),
    ) {
        let codec = Avro::<Event>::bare(EVENT).unwrap();
        let mut body = encoded(&codec, &event);
        let place = place.index(body.len());
        body[place] = byte;
        for body in [body, random] {
            match codec.decode(&body) {
                Ok(event) => drop(encoded(&codec, &event)),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Record),
            }
        }
    }
}

/// The examples of Avro's specification, and a fingerprint that its other implementations have in their tests.
#[test]
fn bodies_are_as_specified() {
    #[derive(Serialize)]
    struct Test {
        a: i64,
        b: String,
    }
    let schema = r#"{"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}"#;
    assert_eq!(encoded(&Avro::bare(schema).unwrap(), &Test { a: 27, b: "foo".into() }), [0x36, 6, 0x66, 0x6f, 0x6f]);
    let number = Avro::<i32>::new(r#""int""#).unwrap();
    assert_eq!(encoded(&number, &-64), [&[0xC3, 1][..], &0x7275_d51a_3f39_5c8f_u64.to_le_bytes(), &[0x7f]].concat());
}

fn number(number: i64) -> Vec<u8> {
    encoded(&Avro::bare(r#""long""#).unwrap(), &number)
}

#[test]
fn lengths_and_counts_beyond_the_body_are_refused_before_anything_is_allocated() {
    let text = Avro::<String>::bare(r#""string""#).unwrap();
    for length in [1, 1 << 20, 1 << 40, i64::MAX] {
        assert!(refused(&text, &number(length)).contains("cut off"));
    }
    assert!(refused(&text, &number(-1)).contains("negative length"));
    let nulls = Avro::<Vec<()>>::bare(r#"{"type": "array", "items": "null"}"#).unwrap();
    let block = |items: i64| [number(items), number(0)].concat();
    assert_eq!(nulls.decode(&block(1_000)).unwrap().len(), 1_000);
    for items in [1 << 18, 1 << 40, i64::MAX] {
        assert!(refused(&nulls, &block(items)).contains("too many values"));
    }
    for items in [-(1 << 18), i64::MIN] {
        let sized = [number(items), number(0), number(0)].concat();
        assert!(refused(&nulls, &sized).contains("too many values"));
    }
    // Many blocks, and lists in a list, each of which is small enough.
    assert!(refused(&nulls, &block(1_000).repeat(300)).contains("bytes behind the value"));
    let mut blocks = number(1_000).repeat(300);
    blocks.push(0);
    assert!(refused(&nulls, &blocks).contains("too many values"));
    assert!(refused(&nulls.values_max(1_000), &block(1_000)).contains("too many values"));
    let lists = r#"{"type": "array", "items": {"type": "array", "items": "null"}}"#;
    let lists = Avro::<Vec<Vec<()>>>::bare(lists).unwrap();
    let body = [number(300), block(1_000).repeat(300), number(0)].concat();
    assert!(refused(&lists, &body).contains("too many values"));
}

#[derive(Debug, Serialize, Deserialize)]
struct Chain {
    next: Option<Box<Chain>>,
}

#[test]
fn depth_is_bounded_and_the_deepest_body_fits_the_stack() {
    let schema = r#"{"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}"#;
    let codec = Avro::<Chain>::bare(schema).unwrap();
    // A link is a union and a record.
    let links = walk::DEPTH_MAX / 2 - 1;
    assert!(codec.decode(&[vec![2; links], vec![0]].concat()).is_ok());
    for links in [links + 1, 1_000_000] {
        assert!(refused(&codec, &[vec![2; links], vec![0]].concat()).contains("nested too deep"));
    }
    // One that ends nowhere.
    let endless = r#"{"type": "record", "name": "Endless", "fields": [{"name": "next", "type": "Endless"}]}"#;
    assert!(refused(&Avro::<Chain>::bare(endless).unwrap(), b"").contains("nested too deep"));
}

#[test]
fn heads_of_others_are_record_errors() {
    let codec = Avro::<i32>::new(r#""int""#).unwrap();
    let body = encoded(&codec, &5);
    for head in [&b""[..], b"\xc3", b"\xc3\x01", &body[..9], b"\xc3\x02\0\0\0\0\0\0\0\0\x0a", b"{}"] {
        assert!(refused(&codec, head).contains("no single-object head"));
    }
    let long = encoded(&Avro::new(r#""long""#).unwrap(), &5i64);
    assert!(refused(&codec, &long).contains("written with an unknown schema"));
    let wider = Avro::<i64>::new(r#""long""#).unwrap().reads(r#""int""#).unwrap();
    assert_eq!((wider.decode(&body).unwrap(), wider.decode(&long).unwrap()), (5, 5));
}

#[test]
fn an_error_does_not_quote_the_body() {
    let codec = Avro::<Event>::bare(r#""string""#).unwrap();
    let body = [number(9), b"4111-1111".to_vec()].concat();
    assert!(!refused(&codec, &body).contains("4111"));
    let mut to = vec![];
    let error = Avro::bare(r#""int""#).unwrap().encode(&"4111-1111", &mut to).unwrap_err();
    assert!(!format!("{error:?} {}", error.report()).contains("4111"));
    assert_eq!(error.kind(), ErrorKind::Record);
}

#[test]
fn schemas_that_cannot_be_are_refused() {
    let cause = |codec: Result<Avro<i32>>| {
        let error = codec.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    for schema in
        ["", "{", r#""Nobody""#, r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nobody"}]}"#]
    {
        assert!(cause(Avro::new(schema)).contains("not an avro schema"), "{schema}");
    }
    let big = r#"{"type": "array", "items": {"type": "bytes", "logicalType": "big-decimal"}}"#;
    assert!(cause(Avro::new(big)).contains("big-decimal"));
    let int = || Avro::<i32>::new(r#""int""#).unwrap();
    assert!(cause(int().reads(r#""string""#)).contains("cannot be read"));
    let with_doc = |doc: &str| format!(r#"{{"type": "fixed", "name": "F", "size": 4, "doc": "{doc}"}}"#);
    let fixed = Avro::<i32>::new(&with_doc("one")).unwrap();
    assert!(cause(fixed.reads(&with_doc("other"))).contains("same fingerprint"));
    // Resolution takes twice the time for each level of unions.
    let chain = |more: &str| {
        let next = r#"{"name": "next", "type": ["null", "Chain"]}"#;
        format!(r#"{{"type": "record", "name": "Chain", "fields": [{next}{more}]}}"#)
    };
    let wider = Avro::<i32>::new(&chain(r#", {"name": "more", "type": "int", "default": 7}"#)).unwrap();
    assert!(cause(wider.reads(&chain(""))).contains("unions in each other"));
    let nested = |levels: usize| {
        let records = (0..levels).fold(r#""int""#.to_owned(), |inner, level| {
            format!(
                r#"["null", {{"type": "record", "name": "R{level}", "fields": [{{"name": "a", "type": {inner}}}]}}]"#
            )
        });
        format!(r#"{{"type": "array", "items": {records}}}"#)
    };
    let reads = |levels| Avro::<i32>::bare(&nested(levels)).unwrap().reads(&nested(levels));
    assert!(reads(UNION_LEVELS_MAX).is_ok());
    assert!(cause(reads(UNION_LEVELS_MAX + 1)).contains("unions in each other"));
}

/// What the rules of resolution say, in one record.
#[test]
fn a_schema_may_change() {
    #[derive(Serialize)]
    struct First {
        card: &'static str,
        cents: i32,
        gone: &'static str,
        kind: FirstKind,
    }
    #[derive(Serialize)]
    enum FirstKind {
        Card,
        #[expect(dead_code, reason = "as it was")]
        Cash,
        Cheque,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Second {
        kind: Kind,
        owner: Option<String>,
        cents: i64,
        currency: String,
        card: Option<String>,
    }
    let first = r#"{"type": "record", "name": "Payment", "fields": [
        {"name": "card", "type": "string"}, {"name": "cents", "type": "int"}, {"name": "gone", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["Card", "Cash", "Cheque"]}}]}"#;
    let second = r#"{"type": "record", "name": "Payment", "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["Cash", "Card"], "default": "Cash"}},
        {"name": "owner", "type": ["null", "string"], "default": null},
        {"name": "cents", "type": "long"}, {"name": "currency", "type": "string", "default": "EUR"},
        {"name": "card", "type": ["null", "string"]}]}"#;
    let codec = Avro::<Second>::new(second).unwrap().reads(first).unwrap();
    for (kind, read) in [(FirstKind::Card, Kind::Card), (FirstKind::Cheque, Kind::Cash)] {
        let body = encoded(&Avro::new(first).unwrap(), &First { card: "c7", cents: 250, gone: "x", kind });
        let want = Second { kind: read, owner: None, cents: 250, currency: "EUR".into(), card: Some("c7".into()) };
        assert_eq!(codec.decode(&body).unwrap(), want);
    }
}

/// A bad body is a dead letter with its bytes, and the stream goes on.
#[test]
fn bodies_that_are_none_meet_the_error_policy() {
    let builder = StreamBuilder::new("job").unwrap();
    let numbers =
        builder.source("in", Avro::<i64>::bare(r#""long""#).unwrap()).on_error(ErrorPolicy::dead_letter("bad"));
    numbers.map(|number| number + 1).sink("out", "out", Avro::<i64>::new(r#""long""#).unwrap());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    let bodies = [number(1), vec![0x80], number(2), vec![0xff; 20], number(3)];
    for body in &bodies {
        driver.send("in", body).unwrap();
    }
    driver.commit().unwrap();
    let codec = Avro::<i64>::new(r#""long""#).unwrap();
    let out: Vec<i64> = driver.bodies("out").iter().map(|body| codec.decode(body).unwrap()).collect();
    assert_eq!(out, [2, 3, 4]);
    assert_eq!(driver.bodies("bad"), [bodies[1].clone(), bodies[3].clone()]);
}
