//! What a command prints: text for people or JSON for machines.

use onceflow::types::{Error, Result};
use serde_json::Value;
use std::io::Write as _;

/// How to print.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints one of the two forms of the same answer.
    ///
    /// # Errors
    /// `Invalid` when nobody can read it, for instance after `| head`.
    pub(crate) fn print(self, json: &Value, text: &str) -> Result<()> {
        let mut to = std::io::stdout().lock();
        let written = if self.json { writeln!(to, "{json:#}") } else { write!(to, "{text}") };
        written.and_then(|()| to.flush()).map_err(|e| Error::invalid("cannot print the answer").with_source(e))
    }
}

/// Columns of equal width, two spaces apart; the last one is not padded.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.extend([format!("{cell:<width$}  ")]);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        assert_eq!(table(&[row(&["a", "bb", "c"]), row(&["aaa", "b"])]), "a    bb  c\naaa  b\n");
    }
}
