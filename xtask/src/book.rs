//! `cargo xtask book`: the guide in `docs/guide` as HTML, with every link checked.
//!
//! mdBook is a library of the workspace in `book/`, which nothing else depends on: it is compiled once, into a part of the
//! target folder of its own. The code of the guide is tested by the crate's doc tests (`src/guide.rs`).

use crate::{Outcome, paths, run};

/// The program's own tests, then the book.
pub(crate) fn step() -> Outcome {
    let target = paths::target()?.join("book");
    let manifest = paths::root().join("book/Cargo.toml");
    let cargo = |word: &str| {
        let mut cargo = run::cargo([word, "--locked", "--quiet", "--manifest-path"])?;
        cargo.arg(&manifest).arg("--target-dir").arg(&target);
        Ok::<_, String>(cargo)
    };
    run::check(&mut cargo("test")?)?;
    run::check(cargo("run")?.arg("--").arg(paths::root()).arg(target.join("guide")))
}
