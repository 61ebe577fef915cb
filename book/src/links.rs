//! Links between chapters, and out of the book.

use super::REPOSITORY;
use mdbook_driver::book::Book;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What links may lead to.
pub struct Links {
    /// The repository, as an absolute path.
    root: PathBuf,
    /// The folder of the chapters, as an absolute path.
    folder: PathBuf,
    /// The anchors of each chapter, by its absolute path.
    chapters: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Links {
    pub fn new(root: PathBuf, folder: &Path, book: &Book) -> Self {
        let chapter = |path: &PathBuf, text: &str| (folder.join(path), anchors(text));
        let chapters =
            book.chapters().filter_map(|of| of.path.as_ref().map(|path| chapter(path, &of.content))).collect();
        Links { root, folder: folder.to_owned(), chapters }
    }

    /// Chapters that lie in the folder and are not in the summary: nobody would find them.
    pub fn unlisted(&self) -> io::Result<Vec<String>> {
        let mut findings = vec![];
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "md")
                && !path.ends_with("SUMMARY.md")
                && !self.chapters.contains_key(&path)
            {
                findings.push(format!("{} is not in SUMMARY.md", path.display()));
            }
        }
        Ok(findings)
    }

    /// The text of a chapter with links out of the book pointing to the repository's page. What leads nowhere is added to
    /// `findings`.
    pub fn resolved(&self, chapter: &Path, text: &str, findings: &mut Vec<String>) -> String {
        let mut code = false;
        let mut resolved = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            if code || fence {
                resolved.push_str(line);
            } else {
                self.text_line(chapter, line, &mut resolved, findings);
            }
        }
        resolved
    }

    fn text_line(&self, chapter: &Path, text: &str, to: &mut String, findings: &mut Vec<String>) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("](") {
            let Some((link, behind)) = after.split_once(')') else { break };
            to.push_str(before);
            to.push_str("](");
            to.push_str(&self.target(chapter, link).unwrap_or_else(|| {
                findings.push(format!("{}: {link}", chapter.display()));
                link.to_owned()
            }));
            to.push(')');
            rest = behind;
        }
        to.push_str(rest);
    }

    /// What a link becomes; `None` when it leads nowhere.
    fn target(&self, chapter: &Path, link: &str) -> Option<String> {
        if link.contains("://") {
            return Some(link.to_owned());
        }
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let file =
            if path.is_empty() { chapter.to_owned() } else { chapter.parent()?.join(path).canonicalize().ok()? };
        if let Some(anchors) = self.chapters.get(&file) {
            return anchor.is_none_or(|anchor| anchors.contains(anchor)).then(|| link.to_owned());
        }
        let inside = file.strip_prefix(&self.root).ok()?.to_str()?;
        let text = || fs::read_to_string(&file).unwrap_or_default();
        if !anchor.is_none_or(|anchor| anchors(&text()).contains(anchor)) {
            return None;
        }
        let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
        Some(format!("{REPOSITORY}/{inside}{anchor}"))
    }
}

/// The anchors of a page's headings, as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let is_heading = |line: &&str| {
        code ^= line.trim_start().starts_with("```");
        !code && line.starts_with('#')
    };
    text.lines().filter(is_heading).map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' ');
    heading
        .to_lowercase()
        .chars()
        .filter(|letter| kept(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with a book of two chapters, and `text` in the first one.
    fn resolved(text: &str) -> (String, Vec<String>) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap();
        let folder = root.join("docs/guide/src");
        let chapters = [("testing.md", ""), ("windows.md", "# Windows\n## What is late\n```sh\n# no heading\n```\n")];
        let chapters = chapters.iter().map(|(name, text)| (folder.join(name), anchors(text))).collect();
        let links = Links { root, folder: folder.clone(), chapters };
        let mut findings = vec![];
        (links.resolved(&folder.join("testing.md"), text, &mut findings), findings)
    }

    #[test]
    fn links_inside_the_book_stay_and_others_lead_to_the_repository() {
        let text = "[a](windows.md#what-is-late) [b](https://x.y/z) [c](../../../README.md#the-promise)\n";
        let expected =
            format!("[a](windows.md#what-is-late) [b](https://x.y/z) [c]({REPOSITORY}/README.md#the-promise)\n");
        assert_eq!(resolved(text), (expected, vec![]));
    }

    #[test]
    fn links_that_lead_nowhere_are_found_and_code_is_not_looked_at() {
        for link in
            ["nowhere.md", "windows.md#no-heading", "#here", "../../../README.md#nothing", "../../../../../etc/passwd"]
        {
            assert_eq!(resolved(&format!("a [b]({link})")).1.len(), 1, "{link}");
        }
        assert_eq!(resolved("```rust\nlet a = [b](c);\n```\n").1.len(), 0);
    }
}
