//! Go's integer argument registers, in the order of its ABIInternal.

use aya_ebpf::programs::ProbeContext;
use tracer_common::STACK_POINTER;

/// Room for every [`tracer_common::Register`].
pub(crate) const REGISTERS: usize = STACK_POINTER as usize + 1;

/// The registers at a hit, and the address of `runtime.g`.
pub(crate) struct Registers {
    pub(crate) values: [u64; REGISTERS],
    pub(crate) g: u64,
}

impl Registers {
    #[cfg(bpf_target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn of(ctx: &ProbeContext) -> Self {
        // SAFETY: the kernel hands a valid pt_regs to every uprobe program.
        let regs = unsafe { &*ctx.regs };
        let mut values = [0; REGISTERS];
        values[0] = regs.rax;
        values[1] = regs.rbx;
        values[2] = regs.rcx;
        values[3] = regs.rdi;
        values[4] = regs.rsi;
        values[5] = regs.r8;
        values[6] = regs.r9;
        values[7] = regs.r10;
        values[8] = regs.r11;
        values[STACK_POINTER as usize] = regs.rsp;
        Self { values, g: regs.r14 }
    }

    #[cfg(bpf_target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn of(ctx: &ProbeContext) -> Self {
        // SAFETY: the kernel hands a valid user_pt_regs to every uprobe program.
        let regs = unsafe { &*ctx.regs };
        let mut values = [0; REGISTERS];
        let mut i = 0;
        while i < 16 {
            values[i] = regs.regs[i];
            i += 1;
        }
        values[STACK_POINTER as usize] = regs.sp;
        Self { values, g: regs.regs[28] }
    }
}
