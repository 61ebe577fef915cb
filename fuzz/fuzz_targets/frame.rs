#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onceflow_fuzz::frame(bytes));
