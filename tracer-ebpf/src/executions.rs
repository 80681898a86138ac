//! How often a program was executed on this machine: who looks for new processes need not list all of them if none was.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use wire::Counter;

use crate::count;

/// Runs once for each `execve` that succeeds, of any process, when the process has its new executable:
/// <https://github.com/torvalds/linux/blob/v6.18/fs/exec.c>, `exec_binprm`.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn on_execution(_ctx: RawTracePointContext) -> i32 {
    count(Counter::Executions);
    0
}
