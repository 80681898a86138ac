//! Machine code: what an instruction costs under a probe, where calls return to.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// What the kernel does with an instruction that carries a uprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Carried out by the kernel itself: cheap.
    /// <https://github.com/torvalds/linux/blob/v6.18/arch/x86/kernel/uprobes.c#L1480-L1620>
    Emulated,
    /// Copied aside and single-stepped, with a second trap: 2 to 20 times as dear.
    SingleStepped,
}

/// An instruction to put a probe on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Virtual address in the file.
    pub address: u64,
    /// What a hit there costs.
    pub class: Class,
}

/// What a call instruction calls, as far as its surroundings tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address.
    Direct(u64),
    /// What a word in memory points to.
    Indirect {
        /// Offset of that word from its base: 24 + 8 × slot for an itab, 0 for a closure.
        offset: u64,
        /// Offset of the word that the base itself came from, where it was loaded: a closure's field.
        base: Option<u64>,
    },
}

/// A call, and the cheapest place that sees its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// The call instruction itself: emulated when the callee is direct.
    pub site: Site,
    /// Address of the instruction after the call.
    pub resume: u64,
    /// The first emulated instruction in straight line after the call: always carried out when the call has
    /// returned. `None` when a return or an indirect jump comes first.
    pub return_site: Option<u64>,
    /// Bit n is set when the n-th integer register of Go's sequence was overwritten before `return_site`.
    pub overwritten: u16,
}

/// Straight lines longer than this after a call are given up.
const MAX_STRAIGHT_LINE: usize = 48;

/// Go's sequence of integer registers on amd64.
const INTEGER_REGISTERS: [Register; 9] = [
    Register::RAX,
    Register::RBX,
    Register::RCX,
    Register::RDI,
    Register::RSI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// The class of an instruction under a uprobe, by the kernel's `branch_setup_xol_ops` and `push_setup_xol_ops`.
pub(crate) fn class(instruction: &Instruction) -> Class {
    let emulated = match instruction.mnemonic() {
        Mnemonic::Nop => instruction.len() == 1,
        Mnemonic::Push => instruction.op0_kind() == OpKind::Register && instruction.len() <= 2,
        // A near or short branch with its target in the instruction.
        Mnemonic::Call | Mnemonic::Jmp => instruction.op0_kind() == OpKind::NearBranch64,
        _ => instruction.is_jcc_short_or_near(),
    };
    if emulated { Class::Emulated } else { Class::SingleStepped }
}

/// All instructions of a function, in the order of their addresses; `Err` holds the address that did not decode.
fn instructions(code: &[u8], address: u64) -> Result<Vec<Instruction>, u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut list = Vec::with_capacity(code.len() / 4);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.code() == Code::INVALID {
            return Err(instruction.ip());
        }
        list.push(instruction);
    }
    Ok(list)
}

/// The first instruction at an address.
pub(crate) fn first(code: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (instruction.code() != Code::INVALID).then_some(instruction)
}

/// The `ret` instructions of a function.
pub(crate) fn returns(code: &[u8], address: u64) -> Result<Vec<u64>, u64> {
    Ok(instructions(code, address)?
        .iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::Return)
        .map(Instruction::ip)
        .collect())
}

/// The calls that a function makes.
pub(crate) fn calls(code: &[u8], address: u64) -> Result<Vec<Call>, u64> {
    let instructions = instructions(code, address)?;
    let mut loads = Loads::default();
    let mut info = InstructionInfoFactory::new();
    let mut calls = Vec::new();
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(callee) = loads.callee(instruction) {
            let (return_site, overwritten) = return_site(&instructions[index + 1..], &mut info);
            let site = Site { address: instruction.ip(), class: class(instruction) };
            calls.push(Call { callee, site, resume: instruction.next_ip(), return_site, overwritten });
        }
        loads.observe(instruction, &mut info);
    }
    Ok(calls)
}

fn return_site(rest: &[Instruction], info: &mut InstructionInfoFactory) -> (Option<u64>, u16) {
    let mut overwritten = 0;
    for instruction in rest.iter().take(MAX_STRAIGHT_LINE) {
        if class(instruction) == Class::Emulated {
            return (Some(instruction.ip()), overwritten);
        }
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
        for register in written(instruction, info) {
            if let Some(bit) = INTEGER_REGISTERS.iter().position(|integer| *integer == register) {
                overwritten |= 1 << bit;
            }
        }
    }
    (None, overwritten)
}

fn written(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Vec<Register> {
    info.info(instruction)
        .used_registers()
        .iter()
        .filter(|used| {
            !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        })
        .map(|used| used.register().full_register())
        .collect()
}

/// What the registers were last loaded from, within straight-line code: enough to tell which slot of an itab, or
/// which closure field, an indirect call goes through.
#[derive(Default)]
struct Loads([Option<Load>; 16]);

#[derive(Clone, Copy)]
struct Load {
    offset: u64,
    base: Option<u64>,
}

impl Loads {
    fn of(&self, register: Register) -> Option<Load> {
        let register = register.full_register();
        register.is_gpr64().then(|| self.0[register.number()]).flatten()
    }

    fn callee(&self, instruction: &Instruction) -> Option<Callee> {
        if instruction.mnemonic() != Mnemonic::Call {
            return None;
        }
        match instruction.op0_kind() {
            OpKind::NearBranch64 => Some(Callee::Direct(instruction.near_branch_target())),
            OpKind::Register => {
                let Load { offset, base } = self.of(instruction.op0_register())?;
                Some(Callee::Indirect { offset, base })
            }
            OpKind::Memory => {
                let Load { offset, base } = self.load(instruction);
                Some(Callee::Indirect { offset, base })
            }
            _ => None,
        }
    }

    fn load(&self, instruction: &Instruction) -> Load {
        let base = self.of(instruction.memory_base()).map(|load| load.offset);
        Load { offset: instruction.memory_displacement64(), base }
    }

    fn observe(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        let moves = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
        let known = match (instruction.op0_kind(), instruction.op1_kind()) {
            (OpKind::Register, OpKind::Memory) if moves => Some(self.load(instruction)),
            // A move between registers carries its knowledge along.
            (OpKind::Register, OpKind::Register) if moves => self.of(instruction.op1_register()),
            _ => None,
        };
        for register in written(instruction, info) {
            if register.is_gpr64() {
                self.0[register.number()] = None;
            }
        }
        if known.is_some() {
            self.0[instruction.op0_register().number()] = known;
        }
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            // Go's ABIInternal has no callee-saved registers.
            self.0 = [None; 16];
        }
    }
}
