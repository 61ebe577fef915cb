//! The shape of the repository, read from its files: the arrows of the crate graph, dead files, sizes, words that have no
//! place here, and links. A failed test lists every finding, one a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Each crate's floor. A crate may know crates of lower floors only, so siblings do not know each other.
const FLOORS: [(&str, u8); 12] = [
    // Shares no code with what it judges.
    ("onceflow-audit", 0),
    ("onceflow-types", 0),
    ("onceflow-storage", 1),
    ("onceflow-log", 1),
    ("onceflow-txn", 1),
    ("onceflow", 2),
    ("onceflow-cli", 3),
    ("onceflow-interleave", 3),
    ("onceflow-model", 3),
    ("onceflow-sim", 3),
    ("onceflow-soak", 3),
    ("xtask", 3),
];
/// Tools of this repository, of no use elsewhere.
const UNPUBLISHED: [&str; 6] =
    ["onceflow-audit", "onceflow-interleave", "onceflow-model", "onceflow-sim", "onceflow-soak", "xtask"];
/// A file past this has a second idea inside.
const LINES_MAX: usize = 800;
/// Macros that mark unfinished work, without their exclamation mark, so that this file does not find itself.
const UNFINISHED: [&str; 3] = ["todo", "dbg", "unimplemented"];
/// First folders of paths that exist on one machine only, without their slashes for the same reason.
const MACHINE_FOLDERS: [&str; 3] = ["work", "root", "home"];
/// Files with text that people or tools read.
const TEXT: [&str; 7] = ["rs", "md", "toml", "java", "xml", "txt", "yml"];

#[test]
fn no_arrow_of_the_crate_graph_points_up() {
    let floors = BTreeMap::from(FLOORS);
    let mut findings = Vec::new();
    for manifest in manifests() {
        let Some(floor) = floors.get(manifest.name.as_str()) else {
            findings.push(format!("{} has no floor: add it to FLOORS", manifest.name));
            continue;
        };
        for dependency in &manifest.dependencies {
            match floors.get(dependency.as_str()) {
                Some(lower) if lower < floor => {}
                Some(_) => findings.push(format!("{} must not depend on {dependency}", manifest.name)),
                None if dependency.starts_with("onceflow") => findings.push(format!("{dependency} has no floor")),
                None => {}
            }
        }
    }
    none(&findings);
}

#[test]
fn every_crate_has_a_manifest_that_this_test_reads() {
    let read: BTreeSet<String> = manifests().into_iter().map(|manifest| manifest.name).collect();
    let known: BTreeSet<String> = FLOORS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(read, known);
    // If dependencies were not found at all, no arrow could point up.
    let engine = manifests().into_iter().find(|manifest| manifest.name == "onceflow").map(|found| found.dependencies);
    assert!(engine.is_some_and(|found| found.contains("onceflow-txn") && found.contains("onceflow-storage")));
}

#[test]
fn tools_of_this_repository_are_never_published() {
    for manifest in manifests() {
        let tool = UNPUBLISHED.contains(&manifest.name.as_str());
        assert_eq!(manifest.unpublished, tool, "`publish = false` in the manifest of {}", manifest.name);
    }
}

#[test]
fn every_source_file_is_part_of_a_crate() {
    let mut findings = Vec::new();
    for member in members() {
        let all: BTreeSet<PathBuf> = ["src", "tests", "examples", "benches"]
            .into_iter()
            .flat_map(|folder| files(&member.join(folder)))
            .filter(|file| has_extension(file, &["rs"]))
            .collect();
        let mut used = BTreeSet::new();
        for target in all.iter().filter(|file| is_target(&member, file)) {
            reach(target, true, &mut used);
        }
        findings.extend(all.difference(&used).map(|file| format!("{} is no module of any target", shown(file))));
    }
    none(&findings);
}

#[test]
fn no_source_file_is_too_long() {
    let long = |file: &PathBuf| {
        let lines = read(file).lines().count();
        (lines > LINES_MAX).then(|| format!("{}: lines={lines} most={LINES_MAX}", shown(file)))
    };
    none(&sources(&["rs"]).iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn no_unfinished_work_is_left_in_the_code() {
    let mut findings = Vec::new();
    for file in sources(&["rs"]) {
        for (number, line) in read(&file).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let found = UNFINISHED.iter().find(|name| code.contains(&format!("{name}!")));
            findings.extend(found.map(|name| format!("{}:{}: {name}!", shown(&file), number + 1)));
        }
    }
    none(&findings);
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let mut findings = Vec::new();
    for file in sources(&TEXT).into_iter().chain(files(&root().join(".ci"))) {
        for (number, line) in read(&file).lines().enumerate() {
            let found = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder));
            findings.extend(found.map(|folder| format!("{}:{}: /{folder}/", shown(&file), number + 1)));
        }
    }
    none(&findings);
}

#[test]
fn decisions_are_numbered_once_and_linked() {
    let texts: Vec<(PathBuf, String)> = sources(&["md"]).into_iter().map(|file| (file.clone(), read(&file))).collect();
    let (mut findings, mut numbers) = (Vec::new(), BTreeSet::new());
    for file in files(&root().join("docs/decisions")) {
        let name = name(&file);
        if name == "README.md" {
            continue;
        }
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) || !has_extension(&file, &["md"]) {
            findings.push(format!("{name} is not named NNNN-title.md"));
        } else if !numbers.insert(number.to_owned()) {
            findings.push(format!("{name}: the number is used twice"));
        }
        if !texts.iter().any(|(other, text)| *other != file && text.contains(&name)) {
            findings.push(format!("{name} is linked nowhere: add it to docs/decisions/README.md"));
        }
    }
    none(&findings);
}

#[test]
fn every_link_in_the_documentation_leads_to_a_file() {
    let mut findings = Vec::new();
    for file in sources(&["md"]) {
        for link in links(&read(&file)) {
            let path = link.split('#').next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !elsewhere && !file.parent().is_some_and(|folder| folder.join(path).exists()) {
                findings.push(format!("{} links to {link}", shown(&file)));
            }
        }
    }
    none(&findings);
}

#[test]
fn this_test_finds_what_it_looks_for() {
    assert!(names_folder(&format!("see `/{}/somebody`", "home"), "home"));
    assert!(!names_folder("docs/home/x and ~/home and ./home/y", "home"));
    assert_eq!(links("a [b](c.md#d) and `[e](f)`\n```\n[g](h)\n```\n[i](j)"), ["c.md#d", "j"]);
    assert_eq!(module("    pub(crate) mod name;"), Some("name"));
    assert_eq!(module("mod inline {"), None);
    let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n[dependencies.c]\nd = 1\n[features]\ne = []\n\
                [target.'cfg(unix)'.dev-dependencies]\nf = { path = \"g\" }\n";
    let manifest = Manifest::parse(text);
    assert_eq!(manifest.name, "x");
    assert_eq!(manifest.dependencies.into_iter().collect::<Vec<_>>(), ["a", "b", "c", "f"]);
}

/// What these tests need of a `Cargo.toml`.
#[derive(Default)]
struct Manifest {
    name: String,
    unpublished: bool,
    /// Of every kind, those for tests and builds, too.
    dependencies: BTreeSet<String>,
}

impl Manifest {
    fn parse(text: &str) -> Self {
        let (mut manifest, mut table) = (Self::default(), String::new());
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                header.clone_into(&mut table);
                if let Some((_, name)) = table.rsplit_once("dependencies.") {
                    manifest.dependencies.insert(name.to_owned());
                }
            } else if let Some((key, value)) = line.split_once('=') {
                manifest.entry(&table, key.trim(), value.trim());
            }
        }
        manifest
    }

    fn entry(&mut self, table: &str, key: &str, value: &str) {
        match (table, key) {
            ("package", "name") => value.trim_matches('"').clone_into(&mut self.name),
            ("package", "publish") => self.unpublished = value == "false",
            // Versions for all crates are not dependencies of any.
            ("workspace.dependencies", _) => {}
            (table, key) if table.ends_with("dependencies") => {
                let name = key.split('.').next().unwrap_or(key);
                self.dependencies.insert(name.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
}

fn manifests() -> Vec<Manifest> {
    members().iter().map(|folder| Manifest::parse(&read(&folder.join("Cargo.toml")))).collect()
}

/// The folders of all crates of the workspace, the root first.
fn members() -> Vec<PathBuf> {
    let text = read(&root().join("Cargo.toml"));
    let list = text.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let names = list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty());
    std::iter::once(root().to_owned()).chain(names.map(|name| root().join(name))).collect()
}

/// Whether cargo builds something from this file itself, instead of finding it through a `mod` line.
fn is_target(member: &Path, file: &Path) -> bool {
    let inside = file.strip_prefix(member).unwrap_or(file);
    let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.as_slice() {
        ["src", file] => ["lib.rs", "main.rs"].contains(file),
        ["src", "bin", rest @ ..] | ["tests" | "examples" | "benches", rest @ ..] => {
            rest.len() == 1 || matches!(rest, [_, "main.rs"])
        }
        _ => false,
    }
}

/// Adds `file` and every file that its `mod` lines lead to. Modules of a target, and of a `mod.rs`, lie beside it; those
/// of another file lie in the folder of its name.
fn reach(file: &Path, target: bool, used: &mut BTreeSet<PathBuf>) {
    if !used.insert(file.to_owned()) {
        return;
    }
    let beside = target || name(file) == "mod.rs";
    let folder = if beside { file.parent().unwrap_or(file).to_owned() } else { file.with_extension("") };
    let text = read(file);
    // `#[path = "..."]` is relative to the folder of the file that says it.
    for path in text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")) {
        let path = file.parent().unwrap_or(file).join(path).canonicalize().unwrap_or_default();
        reach(&path, false, used);
    }
    for module in text.lines().filter_map(module) {
        let candidates = [folder.join(format!("{module}.rs")), folder.join(module).join("mod.rs")];
        candidates.iter().filter(|path| path.is_file()).for_each(|path| reach(path, false, used));
    }
}

/// The module that a line declares, if it lies in another file.
fn module(line: &str) -> Option<&str> {
    let line = line.trim().strip_suffix(';')?;
    let line = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(')').map_or(rest, |(_, rest)| rest));
    let name = line.trim_start().strip_prefix("mod ")?.trim();
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(name)
}

/// Whether the line holds an absolute path that begins with this folder.
fn names_folder(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    line.match_indices(&path).any(|(at, _)| {
        let before = line.get(..at).and_then(|start| start.chars().last());
        !before.is_some_and(|letter| letter.is_alphanumeric() || "./~_-}>*".contains(letter))
    })
}

/// The targets of `[text](target)` outside code.
fn links(text: &str) -> Vec<String> {
    let (mut found, mut code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            // Every second piece between backquotes is code.
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
            found.extend(targets.map(str::to_owned));
        }
    }
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files of the repository with one of these extensions, build output left out.
fn sources(extensions: &[&str]) -> Vec<PathBuf> {
    let top = fs::read_dir(root()).map(Iterator::flatten).into_iter().flatten().map(|entry| entry.path());
    let wanted = top.filter(|path| !name(path).starts_with('.') && name(path) != "target");
    let all = wanted.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    all.filter(|file| has_extension(file, extensions)).collect()
}

/// All files below a folder, in order; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map(Iterator::flatten).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true if ["target", "artifacts", "corpus"].contains(&name(&path).as_str()) => Vec::new(),
        true => files(&path),
        false => vec![path],
    };
    paths.into_iter().flat_map(below).collect()
}

fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    file.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn shown(file: &Path) -> String {
    let inside = file.strip_prefix(root()).unwrap_or(file);
    inside.components().map(Component::as_os_str).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
