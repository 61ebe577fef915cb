//! Tables: events in, decisions behind `->`. `UPDATE=1 cargo test` rewrites them, to be reviewed as a diff.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One line: its first word, further words, and `key=value` pairs.
pub(crate) struct Step<'t> {
    pub(crate) verb: &'t str,
    pub(crate) words: Vec<&'t str>,
    fields: BTreeMap<&'t str, &'t str>,
}

impl<'t> Step<'t> {
    fn parse(line: &'t str) -> Self {
        let mut parts = line.split_whitespace();
        let verb = parts.next().unwrap();
        let (fields, words): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.contains('='));
        Step { verb, words, fields: fields.iter().map(|field| field.split_once('=').unwrap()).collect() }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&'t str> {
        self.fields.get(key).copied()
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.text(key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    }

    pub(crate) fn or(&self, key: &str, default: u64) -> u64 {
        self.number(key).unwrap_or(default)
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
}

/// Runs every step of a table and compares what is behind the arrows. A line `case …` starts anew.
pub(crate) fn run<S>(table: &str, fresh: impl Fn() -> S, step: impl Fn(&mut S, &Step<'_>) -> String) {
    let path = format!("{}/testdata/{table}.txt", env!("CARGO_MANIFEST_DIR"));
    let before = std::fs::read_to_string(&path).unwrap();
    let (mut after, mut state) = (String::new(), fresh());
    for line in before.lines() {
        let given = line.split_once(" ->").map_or(line, |(given, _)| given).trim_end();
        if given.starts_with("case ") {
            state = fresh();
        }
        if given.is_empty() || given.starts_with('#') || given.starts_with("case ") {
            writeln!(after, "{given}").unwrap();
        } else {
            writeln!(after, "{given:<44} -> {}", step(&mut state, &Step::parse(given))).unwrap();
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, after).unwrap();
        return;
    }
    if let Some((expected, got)) = before.lines().zip(after.lines()).find(|(expected, got)| expected != got) {
        panic!("{table}.txt differs, review with UPDATE=1:\n  expected {expected}\n  got      {got}");
    }
}
