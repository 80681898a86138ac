//! Go's integer argument registers, in the order of its ABIInternal.

use aya_ebpf::programs::ProbeContext;
use wire::STACK_POINTER;

/// Number of [`wire::Register`]s.
pub(crate) const REGISTERS: usize = STACK_POINTER as usize + 1;

/// The registers at a hit, by [`wire::Register`].
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn registers(ctx: &ProbeContext) -> [u64; REGISTERS] {
    // SAFETY: the kernel passes a valid pt_regs to every uprobe program.
    let regs = unsafe { &*ctx.regs };
    let (ax, bx, cx, di, si) = (regs.rax, regs.rbx, regs.rcx, regs.rdi, regs.rsi);
    let (r8, r9, r10, r11) = (regs.r8, regs.r9, regs.r10, regs.r11);
    // The gap has any value: the compiler would write zeros with a loop, byte for byte.
    [ax, bx, cx, di, si, r8, r9, r10, r11, ax, ax, ax, ax, ax, ax, regs.rsp]
}

/// The address of the current `runtime.g`.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn g(ctx: &ProbeContext) -> u64 {
    // SAFETY: as above.
    unsafe { (*ctx.regs).r14 }
}

/// The registers at a hit, by [`wire::Register`].
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn registers(ctx: &ProbeContext) -> [u64; REGISTERS] {
    // SAFETY: the kernel passes a valid user_pt_regs to every uprobe program.
    let regs = unsafe { &*ctx.regs };
    let r = &regs.regs;
    [r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], regs.sp]
}

/// The address of the current `runtime.g`.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn g(ctx: &ProbeContext) -> u64 {
    // SAFETY: as above.
    unsafe { (*ctx.regs).regs[28] }
}
