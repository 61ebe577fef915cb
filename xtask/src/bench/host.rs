//! What machine a result is from.

use std::fs;
use std::process::Command;

/// Processor, cores, memory and kernel, as far as the system says.
pub(super) fn machine() -> String {
    let of = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (cpu, memory) = (processor(&of("/proc/cpuinfo")), gib(&of("/proc/meminfo")));
    // Without what its builder calls it.
    let kernel = of("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    format!("{cpu}, {cores} cores, {memory} GiB, Linux {kernel}")
}

fn processor(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map_or("unknown processor", |(_, model)| model);
    model.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn gib(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    // The kernel keeps some hundred MB for itself.
    kib.div_ceil(1 << 20)
}

/// Today, in UTC.
pub(super) fn date() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    date.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_what_linux_says() {
        assert_eq!(processor("processor : 0\nmodel name\t: Some  CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(gib("MemTotal:       24567890 kB\nMemFree: 1 kB\n"), 24);
        assert_eq!(gib(""), 0);
    }
}
