//! Registers: Go's integer argument registers, in the order of its ABIInternal, and those of a sample.

use aya_ebpf::{
    helpers::bpf_probe_read_user,
    programs::{PerfEventContext, ProbeContext},
};
use wire::STACK_POINTER;

/// Number of [`wire::Register`]s. The last three are [`wire::LINK`], [`wire::GOROUTINE`] and [`STACK_POINTER`].
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
    [ax, bx, cx, di, si, r8, r9, r10, r11, ax, ax, ax, ax, ax, regs.r14, regs.rsp]
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
    [r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[30], r[28], regs.sp]
}

/// The address of the current `runtime.g`.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn g(ctx: &ProbeContext) -> u64 {
    // SAFETY: as above.
    unsafe { (*ctx.regs).regs[28] }
}

/// Where a sample is, and what would be its return address if the function had no frame.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) pc: u64,
    pub(crate) back: u64,
}

/// The innermost frame of a sample; `None` in the kernel.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn leaf(ctx: &PerfEventContext) -> Option<Leaf> {
    // SAFETY: the kernel passes valid registers to every perf event program. It allows no load of a part of one.
    let (cs, pc, sp) = unsafe {
        let regs = &raw const (*ctx.ctx).regs;
        let load = |register: *const u64| register.read_volatile();
        (load(&raw const (*regs).cs), load(&raw const (*regs).rip), load(&raw const (*regs).rsp))
    };
    if cs & 3 != 3 {
        return None;
    }
    // SAFETY: the helper checks the address and reports a fault.
    let back = unsafe { bpf_probe_read_user(sp as *const u64) }.ok()?;
    Some(Leaf { pc, back })
}

/// The target of the direct call that returns to this address: `e8` and four bytes.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn called(back: u64) -> Option<u64> {
    // SAFETY: as above.
    let call = unsafe { bpf_probe_read_user(back.wrapping_sub(8) as *const u64) }.ok()?;
    if (call >> 24) as u8 != 0xe8 {
        return None;
    }
    Some(back.wrapping_add(i64::from((call >> 32) as i32) as u64))
}

/// The innermost frame of a sample; `None` in the kernel.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn leaf(ctx: &PerfEventContext) -> Option<Leaf> {
    // SAFETY: the kernel passes valid registers to every perf event program. It allows no load of a part of one.
    let (state, pc, back) = unsafe {
        let regs = &raw const (*ctx.ctx).regs;
        let load = |register: *const u64| register.read_volatile();
        (load(&raw const (*regs).pstate), load(&raw const (*regs).pc), load(&raw const (*regs).regs[30]))
    };
    if state & 0xf == 0 { Some(Leaf { pc, back }) } else { None }
}

/// The target of the direct call that returns to this address: `bl`, with a signed number of instructions.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn called(back: u64) -> Option<u64> {
    let at = back.wrapping_sub(4);
    // SAFETY: the helper checks the address and reports a fault.
    let call = unsafe { bpf_probe_read_user(at as *const u32) }.ok()?;
    if call >> 26 != 0b100101 {
        return None;
    }
    Some(at.wrapping_add(i64::from((call << 6) as i32 >> 4) as u64))
}
