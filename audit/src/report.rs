//! What the audit found.

use serde::Serialize;

/// Most findings that are told one by one; the figures count all of them.
const FINDINGS_MAX: usize = 50;

/// See the front page for what each counts.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) input: u64,
    pub(crate) outputs: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) out_of_order: u64,
    pub(crate) wrong: u64,
    pub(crate) torn: u64,
    pub(crate) conflicting: u64,
    pub(crate) foreign: u64,
    pub(crate) raw_duplicates: u64,
    pub(crate) ended_again: u64,
    pub(crate) sent_again: u64,
}

/// Figures, and the first findings in words.
#[derive(Default, Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    findings: Vec<String>,
}

impl Report {
    /// Counts a fault and says what it is.
    pub(crate) fn fault(&mut self, figure: impl FnOnce(&mut Figures) -> &mut u64, words: impl FnOnce() -> String) {
        *figure(&mut self.figures) += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(words());
        }
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().map(String::as_str)
    }

    pub(crate) fn is_clean(&self) -> bool {
        let Figures { lost, doubled, out_of_order, wrong, torn, conflicting, foreign, .. } = self.figures;
        [lost, doubled, out_of_order, wrong, torn, conflicting, foreign] == [0; 7]
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&self.figures).unwrap_or_default()
    }
}
