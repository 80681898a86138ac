//! x86-64 machine code.

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter as _, GasFormatter, Instruction,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Call, Callee, Class, Instruction as Listed, MAX_STRAIGHT_LINE, Operation, Return, Site};

/// `push %rbp`, the first instruction after the stack check of a Go function with a frame.
const PUSH_RBP: u8 = 0x55;

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

/// Class of an instruction under a uprobe, by the kernel's `branch_setup_xol_ops` and `push_setup_xol_ops`
/// (<https://github.com/torvalds/linux/blob/v6.18/arch/x86/kernel/uprobes.c#L1480-L1620>).
fn class(instruction: &Instruction) -> Class {
    let emulated = match instruction.mnemonic() {
        Mnemonic::Nop => instruction.len() == 1,
        Mnemonic::Push => instruction.op0_kind() == OpKind::Register && instruction.len() <= 2,
        // A near or short branch with an immediate target.
        Mnemonic::Call | Mnemonic::Jmp => instruction.op0_kind() == OpKind::NearBranch64,
        _ => instruction.is_jcc_short_or_near(),
    };
    if emulated { Class::Emulated } else { Class::SingleStepped }
}

/// All instructions of a function, by address; `Err` holds the address that did not decode.
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

/// Class of the first instruction.
pub(super) fn first(code: &[u8], address: u64) -> Option<Class> {
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    (instruction.code() != Code::INVALID).then(|| class(&instruction))
}

/// Length of the instruction that ends at the end of `code` and sets up the frame; else a description of the mismatch.
pub(super) fn frame_set_up(code: &[u8]) -> Result<u64, &'static str> {
    match code.last() {
        Some(&PUSH_RBP) => Ok(1),
        _ => Err("its frame is not set up by `push %rbp`"),
    }
}

/// All instructions.
pub(super) fn list(code: &[u8], address: u64) -> Vec<Listed> {
    let list = Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter().map(|instruction| {
        let target = instruction.near_branch_target();
        Listed {
            address: instruction.ip(),
            operation: operation(&instruction),
            class: class(&instruction),
            target: (target != 0).then_some(target),
        }
    });
    list.collect()
}

fn operation(instruction: &Instruction) -> Operation {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => Operation::Call,
        FlowControl::ConditionalBranch
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::XbeginXabortXend => Operation::Jump,
        FlowControl::Return => Operation::Return,
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Push => Operation::Push,
        FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => Operation::Other,
    }
}

/// All instructions as text, in GNU syntax. The tables of the formatter are half a megabyte: the daemon does without.
pub(super) fn texts(code: &[u8], address: u64) -> Vec<String> {
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    let texts = Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter().map(|instruction| {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        text
    });
    texts.collect()
}

/// Address and length of the string that a function returns first, if both are constants in its code.
pub(super) fn constant_string(code: &[u8], address: u64) -> Option<(u64, u64)> {
    let (mut pointer, mut length) = (None, None);
    for instruction in instructions(code, address).ok()? {
        match (instruction.mnemonic(), instruction.op0_register().full_register()) {
            (Mnemonic::Lea, Register::RAX) if instruction.is_ip_rel_memory_operand() => {
                pointer = Some(instruction.ip_rel_memory_address());
            }
            (Mnemonic::Mov, Register::RBX) if instruction.op1_kind() != OpKind::Register => {
                length = instruction.try_immediate(1).ok();
            }
            (Mnemonic::Ret, _) => return pointer.zip(length),
            _ => {}
        }
    }
    None
}

/// Addresses of a function's `ret` instructions.
pub(super) fn returns(code: &[u8], address: u64) -> Result<Vec<u64>, u64> {
    Ok(instructions(code, address)?
        .iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::Return)
        .map(Instruction::ip)
        .collect())
}

/// The calls in a function.
pub(super) fn calls(code: &[u8], address: u64) -> Result<Vec<Call>, u64> {
    let instructions = instructions(code, address)?;
    let mut loads = Loads::default();
    let mut info = InstructionInfoFactory::new();
    let branches = |instruction: &&Instruction| {
        matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        )
    };
    let targets: HashSet<u64> =
        instructions.iter().filter(branches).map(Instruction::near_branch_target).collect();
    let mut calls = Vec::new();
    for (index, instruction) in instructions.iter().enumerate() {
        if let Some(callee) = loads.callee(instruction) {
            let Return { site: return_site, overwritten, stored } =
                return_site(&instructions[index + 1..], &targets, &mut info);
            let site = Site { address: instruction.ip(), class: class(instruction) };
            calls.push(Call {
                callee,
                site,
                resume: instruction.next_ip(),
                return_site,
                overwritten,
                stored,
            });
        }
        loads.observe(instruction, &mut info);
    }
    Ok(calls)
}

/// Offset from the stack pointer of the address in an integer register, at the end of the code.
pub(super) fn stack_argument(code: &[u8], address: u64, register: usize) -> Option<u64> {
    let wanted = *INTEGER_REGISTERS.get(register)?;
    let mut info = InstructionInfoFactory::new();
    let mut found = None;
    for instruction in instructions(code, address).ok()? {
        if instruction.mnemonic() == Mnemonic::Lea && instruction.op0_register() == wanted {
            let of_stack =
                instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
            found = of_stack.then(|| instruction.memory_displacement64());
        } else if instruction.flow_control() == FlowControl::Call
            || instruction.flow_control() == FlowControl::IndirectCall
            || written(&instruction, &mut info).contains(&wanted)
        {
            found = None;
        }
    }
    found
}

/// Offsets from the stack pointer at which code that a call returns to keeps the first two results.
pub(super) fn stored_results(code: &[u8], address: u64) -> Option<[u64; 2]> {
    let list = instructions(code, address).ok()?;
    let mut info = InstructionInfoFactory::new();
    let results = &INTEGER_REGISTERS[..2];
    let mut found = [None; 2];
    for instruction in list.iter().take_while(|one| one.flow_control() == FlowControl::Next) {
        let of_stack = instruction.op0_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None;
        let stored = results.iter().position(|result| *result == instruction.op1_register());
        if let (Code::Mov_rm64_r64, true, Some(result)) = (instruction.code(), of_stack, stored) {
            found[result].get_or_insert(instruction.memory_displacement64());
        }
        let written = written(instruction, &mut info);
        if results.iter().zip(found).any(|(result, found)| found.is_none() && written.contains(result)) {
            return None;
        }
    }
    let mut stores = Vec::new();
    for instruction in &list {
        let memory = info.info(instruction).used_memory().iter();
        let writes =
            memory.filter(|memory| memory.base().full_register() == Register::RSP && writes(memory.access()));
        stores.extend(writes.map(|memory| {
            let is_known = memory.index() == Register::None;
            if is_known { (memory.displacement(), memory.memory_size().size() as u64) } else { (0, u64::MAX) }
        }));
    }
    let words = [found[0]?, found[1]?];
    super::are_kept(words, &stores).then_some(words)
}

fn return_site(rest: &[Instruction], targets: &HashSet<u64>, info: &mut InstructionInfoFactory) -> Return {
    let mut found = Return::NONE;
    for instruction in rest.iter().take(MAX_STRAIGHT_LINE) {
        // A branch target, such as the condition of a loop: it is not only reached by the call's return.
        if targets.contains(&instruction.ip()) {
            break;
        }
        if class(instruction) == Class::Emulated {
            return Return { site: Some(instruction.ip()), ..found };
        }
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
        for register in written(instruction, info) {
            if let Some(bit) = INTEGER_REGISTERS.iter().position(|integer| *integer == register) {
                found.overwritten |= 1 << bit;
            }
        }
        for memory in info.info(instruction).used_memory() {
            if memory.base().full_register() == Register::RSP && writes(memory.access()) {
                found.stored = found.stored.min(memory.displacement());
            }
        }
    }
    found
}

fn written(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Vec<Register> {
    info.info(instruction)
        .used_registers()
        .iter()
        .filter(|used| writes(used.access()))
        .map(|used| used.register().full_register())
        .collect()
}

fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// The last load into each register, in straight-line code: identifies the itab slot or closure field of an indirect
/// call.
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
            // A move between registers copies what is known about the source.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_stack_write_after_a_call_is_found() {
        let stored = |instruction: &[u8]| {
            // call; the instruction; jne
            let code = [&[0xe8, 0, 0, 0, 0], instruction, &[0x75, 0x00, 0xc3]].concat();
            calls(&code, 0x1000).expect("it decodes")[0].stored
        };
        assert_eq!(stored(&[0x48, 0x89, 0x44, 0x24, 0x28]), 0x28); // mov %rax,0x28(%rsp)
        assert_eq!(stored(&[0x48, 0x8b, 0x44, 0x24, 0x28]), u64::MAX); // mov 0x28(%rsp),%rax
        assert_eq!(stored(&[0x48, 0x89, 0x43, 0x28]), u64::MAX); // mov %rax,0x28(%rbx)
        assert_eq!(stored(&[0x44, 0x0f, 0x11, 0x7c, 0x24, 0x30]), 0x30); // movups %xmm15,0x30(%rsp)
    }

    #[test]
    fn a_register_points_into_the_stack_until_it_is_written_or_something_is_called() {
        let with = |rest: &[u8]| {
            // lea 0x40(%rsp),%rbx
            let code = [&[0x48, 0x8d, 0x5c, 0x24, 0x40], rest].concat();
            stack_argument(&code, 0x1000, 1)
        };
        assert_eq!(with(&[0x44, 0x0f, 0x11, 0x3b]), Some(0x40)); // movups %xmm15,(%rbx)
        assert_eq!(with(&[0x31, 0xdb]), None); // xor %ebx,%ebx
        assert_eq!(with(&[0xe8, 0, 0, 0, 0]), None); // call
        assert_eq!(with(&[0x48, 0x8d, 0x1d, 0, 0, 0, 0]), None); // lea 0x0(%rip),%rbx
    }

    #[test]
    fn results_are_kept_where_they_are_stored_and_not_overwritten() {
        let kept = |rest: &[u8]| stored_results(rest, 0x1000);
        let first = [0x48, 0x89, 0x44, 0x24, 0x30]; // mov %rax,0x30(%rsp)
        let second = [0x48, 0x89, 0x5c, 0x24, 0x28]; // mov %rbx,0x28(%rsp)
        let call: &[u8] = &[0xe8, 0, 0, 0, 0];
        assert_eq!(kept(&[&first, &second, call].concat()), Some([0x30, 0x28]));
        let other: &[u8] = &[0x48, 0x89, 0x4c, 0x24, 0x38]; // mov %rcx,0x38(%rsp)
        assert_eq!(kept(&[&first, &second, call, other].concat()), Some([0x30, 0x28]));
        assert_eq!(kept(&[&first[..], call, &second].concat()), None);
        let changed: &[u8] = &[0x31, 0xdb]; // xor %ebx,%ebx
        assert_eq!(kept(&[&first, changed, &second].concat()), None);
        let over: &[u8] = &[0x44, 0x0f, 0x11, 0x7c, 0x24, 0x20]; // movups %xmm15,0x20(%rsp)
        assert_eq!(kept(&[&first, &second, call, over].concat()), None);
        let indexed: &[u8] = &[0x48, 0x89, 0x4c, 0x04, 0x60]; // mov %rcx,0x60(%rsp,%rax)
        assert_eq!(kept(&[&first, &second, call, indexed].concat()), None);
    }

    #[test]
    fn a_return_site_is_only_reached_by_the_calls_return() {
        // call; jne over what follows; two bytes; ret
        let with = |two: [u8; 2]| {
            let code = [0xe8, 0, 0, 0, 0, 0x75, 0x02, two[0], two[1], 0xc3];
            calls(&code, 0x1000).expect("it decodes")[0].return_site
        };
        assert_eq!(with([0x90, 0x90]), Some(0x1005));
        // jmp to the jne, as at the end of a loop.
        assert_eq!(with([0xeb, 0xfc]), None);
    }
}
