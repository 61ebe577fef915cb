//! Builds the guide in `docs/guide` with mdBook, and checks its links: `cargo xtask book`.
//!
//! mdBook itself fails on chapters that are missing, and says nothing of links. So each link of a chapter must lead to a
//! chapter and a heading of the book, or to a file of the repository; the latter become links to the repository's page.

mod links;

use links::Links;
use mdbook_driver::MDBook;
use mdbook_driver::book::Book;
use mdbook_driver::errors::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where files of the repository that are not part of the book can be read.
const REPOSITORY: &str = "https://github.com/onceflow/onceflow/blob/main";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(to)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: onceflow-book <repository> <folder for the book>");
        return ExitCode::from(2);
    };
    match build(&root, &to) {
        Ok(chapters) => {
            println!("{chapters} chapters in {}", to.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the book into `to`; returns how many chapters it has.
fn build(root: &Path, to: &Path) -> Result<usize> {
    let mut book = MDBook::load(root.join("docs/guide"))?;
    to.clone_into(&mut book.config.build.build_dir);
    let findings = resolve(&mut book.book, root)?;
    if !findings.is_empty() {
        return Err(Error::msg(format!("links that lead nowhere:\n{}", findings.join("\n"))));
    }
    book.build()?;
    Ok(book.book.chapters().count())
}

/// Checks the links of all chapters and points those that leave the book to the repository's page; returns what is wrong.
fn resolve(book: &mut Book, root: &Path) -> Result<Vec<String>> {
    let folder = root.join("docs/guide/src").canonicalize()?;
    let links = Links::new(root.canonicalize()?, &folder, book);
    let mut findings = links.unlisted()?;
    book.for_each_chapter_mut(|chapter| {
        let Some(path) = chapter.path.clone() else { return };
        chapter.content = links.resolved(&folder.join(path), &chapter.content, &mut findings);
    });
    Ok(findings)
}
