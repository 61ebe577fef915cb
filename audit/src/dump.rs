//! A topic as a plain consumer wrote it: one JSON object a line, queue after queue, in the order of offsets.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;

/// One message.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) broker: String,
    pub(crate) queue: u32,
    pub(crate) offset: u64,
    pub(crate) body: String,
    pub(crate) properties: BTreeMap<String, String>,
}

/// The messages of a dump. Every queue must begin at offset 0 and have no holes: else something is missing that nobody
/// could judge, and the audit ends with an error.
pub(crate) struct Dump<R> {
    lines: Lines<R>,
    next: BTreeMap<(String, u32), u64>,
}

impl Dump<BufReader<File>> {
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        let opened = File::open(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(Dump::of(BufReader::new(opened)))
    }
}

impl<R: BufRead> Dump<R> {
    pub(crate) fn of(text: R) -> Self {
        Dump { lines: text.lines(), next: BTreeMap::new() }
    }

    fn checked(&mut self, line: &str) -> Result<Message, String> {
        let message: Message = serde_json::from_str(line).map_err(|error| format!("no message: {error}: {line}"))?;
        let next = self.next.entry((message.broker.clone(), message.queue)).or_default();
        if message.offset != *next {
            let (queue, offset) = (message.queue, message.offset);
            return Err(format!("the dump has a hole: queue={queue} expected={next} found={offset}"));
        }
        *next += 1;
        Ok(message)
    }
}

impl<R: BufRead> Iterator for Dump<R> {
    type Item = Result<Message, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        Some(line.map_err(|error| error.to_string()).and_then(|line| self.checked(&line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(queue: u32, offset: u64) -> String {
        format!(r#"{{"broker":"b","queue":{queue},"offset":{offset},"keys":null,"body":"x","properties":{{"A":"1"}}}}"#)
    }

    fn read(lines: &[String]) -> Result<Vec<Message>, String> {
        Dump::of(lines.join("\n").as_bytes()).collect()
    }

    #[test]
    fn a_dump_is_read_line_by_line() {
        let messages = read(&[line(0, 0), line(0, 1), line(1, 0)]).unwrap();
        assert_eq!(messages.len(), 3);
        assert_eq!((messages[1].offset, messages[1].body.as_str()), (1, "x"));
        assert_eq!(messages[1].properties.get("A").map(String::as_str), Some("1"));
    }

    #[test]
    fn a_hole_or_a_missing_beginning_is_an_error() {
        assert!(read(&[line(0, 0), line(0, 2)]).unwrap_err().contains("hole"));
        assert!(read(&[line(0, 1)]).unwrap_err().contains("hole"));
        assert!(read(&["{}".to_owned()]).unwrap_err().contains("no message"));
    }
}
