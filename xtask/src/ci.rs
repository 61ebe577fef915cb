//! `cargo xtask ci`: lints (licences and advisories among them), tests, documentation, features one by one.

use crate::machine::ROCKSDB;
use crate::steps::Steps;
use crate::{Outcome, lint, run, test};
use serde_json::Value;
use std::process::ExitCode;

/// Doc tests need no step of their own: `cargo test` runs them with the others.
pub(crate) fn main(args: &test::Args) -> ExitCode {
    let mut steps = Steps::default();
    lint::add(&mut steps);
    test::add(&mut steps, args);
    steps.run("documentation", ROCKSDB, || {
        let words = ["doc", "--release", "--workspace", "--all-features", "--no-deps"];
        run::check(run::cargo(words)?.env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.run("features one by one", ROCKSDB, features);
    steps.finish()
}

/// Checks each package without features, and with each of its features alone.
fn features() -> Outcome {
    let output = run::cargo(["metadata", "--no-deps", "--format-version", "1"])?.output().map_err(|e| e.to_string())?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    for (package, features) in packages(&metadata).ok_or("cargo metadata: unexpected form")? {
        for feature in std::iter::once(None).chain(features.into_iter().map(Some)) {
            run::check(&mut run::cargo(alone(package, feature))?)?;
        }
    }
    Ok(())
}

/// The words that check one package with one feature, or with none.
fn alone(package: &str, feature: Option<&str>) -> Vec<String> {
    let words = ["check", "--quiet", "--release", "--no-default-features", "--package", package];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    if let Some(feature) = feature {
        words.extend(["--features".to_owned(), format!("{package}/{feature}")]);
    }
    words
}

/// The packages with their features; `default` is only a list of others.
fn packages(metadata: &Value) -> Option<Vec<(&str, Vec<&str>)>> {
    let mut found = Vec::new();
    for package in metadata.get("packages")?.as_array()? {
        let features = package.get("features")?.as_object()?.keys().map(String::as_str);
        let features: Vec<&str> = features.filter(|feature| *feature != "default").collect();
        if !features.is_empty() {
            found.push((package.get("name")?.as_str()?, features));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_checked_alone() {
        let words = "check --quiet --release --no-default-features --package a";
        assert_eq!(alone("a", None).join(" "), words);
        assert_eq!(alone("a", Some("b")).join(" "), format!("{words} --features a/b"));
    }

    #[test]
    fn packages_without_features_are_left_out() {
        let metadata = serde_json::json!({"packages": [
            {"name": "plain", "features": {}},
            {"name": "rich", "features": {"default": ["one"], "one": [], "two": []}},
        ]});
        assert_eq!(packages(&metadata), Some(vec![("rich", vec!["one", "two"])]));
        assert_eq!(packages(&serde_json::json!({})), None);
    }
}
