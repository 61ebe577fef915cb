//! One program for all targets: `ONCEFLOW_FUZZ_TARGET` says which. `cargo xtask fuzz` builds and runs it.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("ONCEFLOW_FUZZ_TARGET").unwrap_or_default();
    let target = onceflow_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    target.unwrap_or_else(|| panic!("ONCEFLOW_FUZZ_TARGET names no target: {name:?}")).1
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(chosen)(bytes));
