//! Errors of schedspan: one sentence with the cause and the next step.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, bail, ensure};
use harness::stage::Stage;

/// The limit for a command that must fail at once.
const TIMEOUT_SECONDS: &str = "20";

/// A situation in which schedspan cannot work.
struct Case {
    name: &'static str,
    /// The command that runs schedspan.
    before: &'static [&'static str],
    after: &'static [&'static str],
    /// The cause and the next step in the sentence.
    says: &'static [&'static str],
}

const PLAIN: Case = Case { name: "", before: &[], after: &[], says: &[] };

const CASES: &[Case] = &[
    Case {
        name: "no root",
        before: &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
        says: &["CAP_BPF", "run schedspan as root"],
        ..PLAIN
    },
    // CAP_SYS_ADMIN includes both CAP_BPF and CAP_PERFMON.
    Case {
        name: "no CAP_BPF",
        before: &["setpriv", "--bounding-set=-bpf,-sys_admin"],
        says: &["CAP_BPF", "grant"],
        ..PLAIN
    },
    Case {
        name: "no CAP_PERFMON",
        before: &["setpriv", "--bounding-set=-perfmon,-sys_admin"],
        says: &["CAP_PERFMON", "grant"],
        ..PLAIN
    },
    Case {
        name: "no CAP_SYS_PTRACE",
        before: &["setpriv", "--bounding-set=-sys_ptrace"],
        says: &["CAP_SYS_PTRACE", "grant"],
        ..PLAIN
    },
    Case {
        name: "no BTF",
        before: &[
            "unshare",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"",
            "sh",
        ],
        says: &["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"],
        ..PLAIN
    },
    Case {
        name: "no eBPF object",
        after: &["--ebpf-object=/nonexistent"],
        says: &["/nonexistent", "cargo xtask build-ebpf"],
        ..PLAIN
    },
    Case {
        name: "an eBPF object that is none",
        after: &["--ebpf-object=/bin/ls"],
        says: &["/bin/ls", "cargo xtask build-ebpf"],
        ..PLAIN
    },
    Case {
        name: "no kubeconfig",
        after: &["--kubeconfig=/nonexistent"],
        says: &["kubeconfig", "/nonexistent", "give"],
        ..PLAIN
    },
    Case {
        name: "a kubeconfig that is none",
        after: &["--kubeconfig=/bin/ls"],
        says: &["kubeconfig", "/bin/ls", "give"],
        ..PLAIN
    },
    Case {
        name: "a protocol that is none",
        before: &["env", "OTEL_EXPORTER_OTLP_PROTOCOL=nonsense"],
        says: &["OTEL_EXPORTER_OTLP_PROTOCOL", "nonsense", "set it to"],
        ..PLAIN
    },
    Case {
        name: "an address that is not ours",
        after: &["--metrics-listen=203.0.113.1:1"],
        says: &["203.0.113.1:1", "give another address"],
        ..PLAIN
    },
];

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    // A copy that every user can run.
    let dir = std::env::temp_dir().join(format!("schedspan-e2e-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let executable = dir.join("schedspan");
    let copied = fs::copy(&stage.executable, &executable);
    let check = |case: &Case| check(case, &executable).err().map(|error| format!("{}: {error:#}", case.name));
    let wrong: Vec<_> = CASES.iter().filter_map(check).collect();
    fs::remove_dir_all(&dir)?;
    copied?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn check(case: &Case, executable: &Path) -> Result<()> {
    let Case { name: _, before, after, says } = case;
    let mut command = Command::new("timeout");
    command
        .arg(TIMEOUT_SECONDS)
        .args(*before)
        .arg(executable)
        .arg("run")
        .args(*after)
        .env_remove("KUBECONFIG");
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = stderr.lines().filter(|line| line.starts_with("schedspan: ")).collect();
    ensure!(output.status.code() == Some(2), "ended with {}: {stderr}", output.status);
    let [sentence] = said[..] else { bail!("not one sentence: {stderr}") };
    ensure!(!stderr.contains("panicked"), "{stderr}");
    for word in *says {
        ensure!(sentence.contains(word), "{sentence:?} does not say {word:?}");
    }
    Ok(())
}
