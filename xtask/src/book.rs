//! `cargo xtask book`: the guide in `docs/guide` as HTML, with every link checked.
//!
//! mdBook is a library of the workspace in `book/`, which nothing else depends on: it is compiled once, into a part of the
//! target folder of its own. The code of the guide is tested by the crate's doc tests (`src/guide.rs`).

use crate::{Outcome, paths, run};

/// The program's own tests, then the book.
pub(crate) fn step() -> Outcome {
    run::check(&mut run::cargo_of("book", "test")?)?;
    let guide = paths::target()?.join("book/guide");
    run::check(run::cargo_of("book", "run")?.arg("--").arg(paths::root()).arg(guide))
}
