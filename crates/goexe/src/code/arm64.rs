//! AArch64 machine code. Every instruction has four bytes, and few kinds matter here.
//!
//! Encodings are those of the Arm Architecture Reference Manual, chapter C4.

use std::collections::HashSet;

use super::{Call, Callee, Class, Instruction, MAX_STRAIGHT_LINE, Operation, Return, Site};

/// R0 to R15 hold integer arguments and results.
const INTEGER_REGISTERS: u32 = 16;
const STACK_POINTER: u32 = 31;

/// The relevant kinds of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `b`, and the conditional branches.
    Branch {
        target: u64,
        conditional: bool,
    },
    /// `bl`.
    Call {
        target: u64,
    },
    /// `blr`.
    CallRegister {
        register: u32,
    },
    /// `br`, or anything else after which the next instruction is not executed.
    Leave,
    Return,
    /// `adr` or `adrp`: loads an address.
    Address {
        register: u32,
        address: u64,
    },
    /// `ldr xT, [xN, #offset]`.
    Load {
        register: u32,
        base: u32,
        offset: u64,
    },
    /// `mov xD, xN`.
    Move {
        register: u32,
        from: u32,
    },
    /// `add xD, xN, #immediate`.
    Add {
        register: u32,
        from: u32,
        immediate: u64,
    },
    /// `movz`, or `orr` with the zero register: loads a constant.
    Constant {
        register: u32,
        value: u64,
    },
    /// Any other instruction, with the registers that it may write.
    Other {
        first: Option<u32>,
        second: Option<u32>,
    },
}

/// The instruction words of a function, with their addresses.
fn words(code: &[u8], address: u64) -> impl Iterator<Item = (u64, u32)> {
    let words = code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    (address..).step_by(4).zip(words)
}

/// `count` bits of a word, from bit `low` on.
const fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// `address` plus a signed field of `count` bits, in units of four bytes.
fn displaced(address: u64, field: u32, count: u32) -> u64 {
    let shift = 64 - count;
    address.wrapping_add_signed((i64::from(field) << shift >> shift).wrapping_mul(4))
}

fn kind(word: u32, address: u64) -> Kind {
    let (d, n) = (bits(word, 0, 5), bits(word, 5, 5));
    if word & 0x7c00_0000 == 0x1400_0000 {
        let target = displaced(address, bits(word, 0, 26), 26);
        return if word >> 31 == 1 {
            Kind::Call { target }
        } else {
            Kind::Branch { target, conditional: false }
        };
    }
    if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        return Kind::Branch { target: displaced(address, bits(word, 5, 19), 19), conditional: true };
    }
    if word & 0x7e00_0000 == 0x3600_0000 {
        return Kind::Branch { target: displaced(address, bits(word, 5, 14), 14), conditional: true };
    }
    match word & 0xffff_fc1f {
        0xd61f_0000 => return Kind::Leave,
        0xd63f_0000 => return Kind::CallRegister { register: n },
        0xd65f_0000 => return Kind::Return,
        _ => {}
    }
    // brk, udf, svc and similar.
    if word & 0xff00_0000 == 0xd400_0000 || word >> 16 == 0 {
        return Kind::Leave;
    }
    if word & 0x1f00_0000 == 0x1000_0000 {
        let field = bits(word, 5, 19) << 2 | bits(word, 29, 2);
        let offset = i64::from(field) << 43 >> 43;
        let address = if word >> 31 == 1 {
            (address & !0xfff).wrapping_add_signed(offset << 12)
        } else {
            address.wrapping_add_signed(offset)
        };
        return Kind::Address { register: d, address };
    }
    if word & 0xffc0_0000 == 0xf940_0000 {
        return Kind::Load { register: d, base: n, offset: u64::from(bits(word, 10, 12)) * 8 };
    }
    if word & 0xffe0_ffe0 == 0xaa00_03e0 {
        return Kind::Move { register: d, from: bits(word, 16, 5) };
    }
    if word & 0xff80_0000 == 0x9100_0000 && d != STACK_POINTER {
        let shift = bits(word, 22, 1) * 12;
        return Kind::Add { register: d, from: n, immediate: u64::from(bits(word, 10, 12)) << shift };
    }
    if word & 0x7f80_0000 == 0x5280_0000 {
        let value = u64::from(bits(word, 5, 16)) << (16 * bits(word, 21, 2));
        return Kind::Constant { register: d, value };
    }
    if word & 0x7f80_03e0 == 0x3200_03e0
        && let Some(value) = run_of_ones(word)
    {
        return Kind::Constant { register: d, value };
    }
    let register = |number: u32| (number != STACK_POINTER).then_some(number);
    // A load or store. A store writes no register, except a base that it updates.
    if bits(word, 27, 1) == 1 && bits(word, 25, 1) == 0 {
        let pair = word & 0x3a00_0000 == 0x2800_0000;
        let vector = bits(word, 26, 1) == 1;
        let store = if pair { bits(word, 22, 1) == 0 } else { bits(word, 22, 2) == 0 };
        let moves_base = match word & 0x3b00_0000 {
            0x2800_0000 | 0x2900_0000 => bits(word, 23, 1) == 1,
            0x3800_0000 => bits(word, 21, 1) == 0 && bits(word, 10, 1) == 1,
            _ => false,
        };
        let base = if moves_base { register(n) } else { None };
        if store || vector {
            return Kind::Other { first: base, second: None };
        }
        let second = if pair { register(bits(word, 10, 5)) } else { base };
        return Kind::Other { first: register(d), second };
    }
    // Floating point and vectors. Only conversions write an integer register; all are treated as if they did.
    Kind::Other { first: register(d), second: None }
}

/// The constant of `orr xD, xzr, #bitmask`, for masks of a single run of ones in 64 bits.
fn run_of_ones(word: u32) -> Option<u64> {
    let (n, rotate, ones) = (bits(word, 22, 1), bits(word, 16, 6), bits(word, 10, 6));
    let wide = word >> 31 == 1 && n == 1;
    let narrow = word >> 31 == 0 && n == 0 && ones < 32;
    if !(wide || narrow) || ones == 63 {
        return None;
    }
    let mask = (1u64 << (ones + 1)) - 1;
    Some(if wide { mask.rotate_right(rotate) } else { u64::from((mask as u32).rotate_right(rotate & 31)) })
}

/// Class of an instruction: the kernel simulates those that depend on their address
/// (<https://github.com/torvalds/linux/blob/v6.12/arch/arm64/kernel/probes/decode-insn.c#L102-L150>).
fn class(word: u32) -> Class {
    match kind(word, 0) {
        Kind::Branch { .. }
        | Kind::Call { .. }
        | Kind::CallRegister { .. }
        | Kind::Return
        | Kind::Address { .. } => Class::Emulated,
        Kind::Leave if word & 0xffff_fc1f == 0xd61f_0000 => Class::Emulated,
        _ => Class::SingleStepped,
    }
}

pub(super) fn first(code: &[u8]) -> Option<Class> {
    words(code, 0).next().map(|(_, word)| class(word))
}

/// Length of the instruction that sets up the frame: `str x30, [sp, #-N]!`, or `mov sp, xN` for a large frame. Always
/// four bytes.
pub(super) fn frame_set_up(code: &[u8]) -> Result<u64, &'static str> {
    let last = code.len().checked_sub(4).and_then(|start| words(&code[start..], 0).next());
    match last {
        Some((_, word)) if word & 0xffe0_0fff == 0xf800_0ffe || word & 0xffff_fc1f == 0x9100_001f => Ok(4),
        _ => Err("its frame is not set up by `str x30, [sp, #-N]!` or `mov sp, xN`"),
    }
}

pub(super) fn returns(code: &[u8], address: u64) -> Vec<Site> {
    words(code, address)
        .filter(|(address, word)| kind(*word, *address) == Kind::Return)
        .map(|(address, word)| Site { address, class: class(word) })
        .collect()
}

/// The last load into a register, in straight-line code.
#[derive(Clone, Copy)]
struct Loaded {
    offset: u64,
    base: Option<u64>,
}

/// The calls in a function.
pub(super) fn calls(code: &[u8], address: u64) -> Vec<Call> {
    let list: Vec<_> = words(code, address).collect();
    let target = |(address, word): &(u64, u32)| match kind(*word, *address) {
        Kind::Branch { target, .. } => Some(target),
        _ => None,
    };
    let targets: HashSet<u64> = list.iter().filter_map(target).collect();
    let mut loads: [Option<Loaded>; 32] = [None; 32];
    let mut calls = Vec::new();
    for (index, (address, word)) in list.iter().copied().enumerate() {
        let kind = kind(word, address);
        let callee = match kind {
            Kind::Call { target } => Some(Callee::Direct(target)),
            Kind::CallRegister { register } => {
                loads[register as usize].map(|Loaded { offset, base }| Callee::Indirect { offset, base })
            }
            _ => None,
        };
        if let Some(callee) = callee {
            let Return { site: return_site, overwritten, stored } = return_site(&list[index + 1..], &targets);
            let site = Site { address, class: class(word) };
            calls.push(Call { callee, site, resume: address + 4, return_site, overwritten, stored });
        }
        match kind {
            Kind::Load { register, base, offset } => {
                let base = loads[base as usize].map(|loaded| loaded.offset);
                loads[register as usize] = Some(Loaded { offset, base });
            }
            Kind::Move { register, from } => loads[register as usize] = loads[from as usize],
            // Go's ABIInternal has no callee-saved registers.
            Kind::Call { .. } | Kind::CallRegister { .. } => loads = [None; 32],
            _ => {
                for register in written(kind).into_iter().flatten() {
                    loads[register as usize] = None;
                }
            }
        }
    }
    calls
}

/// Offset from the stack pointer of the address in an integer register, at the end of the code.
pub(super) fn stack_argument(code: &[u8], address: u64, register: usize) -> Option<u64> {
    let wanted = u32::try_from(register).ok().filter(|register| *register < INTEGER_REGISTERS)?;
    let mut found = None;
    for (address, word) in words(code, address) {
        let kind = kind(word, address);
        found = match kind {
            Kind::Add { register, from: STACK_POINTER, immediate } if register == wanted => Some(immediate),
            Kind::Call { .. } | Kind::CallRegister { .. } => None,
            _ => found.filter(|_| !written(kind).contains(&Some(wanted))),
        };
    }
    found
}

/// Offsets from the stack pointer at which code that a call returns to keeps the first two results.
pub(super) fn stored_results(code: &[u8], address: u64) -> Option<[u64; 2]> {
    let list: Vec<_> = words(code, address).collect();
    let mut found = [None; 2];
    for (address, word) in list.iter().copied() {
        let kind = kind(word, address);
        if let Kind::Branch { .. }
        | Kind::Call { .. }
        | Kind::CallRegister { .. }
        | Kind::Leave
        | Kind::Return = kind
        {
            break;
        }
        let offset = stored(word);
        let is_pair = word & 0xffc0_0000 == 0xa900_0000;
        let is_word = word & 0xffc0_0000 == 0xf900_0000;
        let second = is_pair.then(|| (bits(word, 10, 5), offset.map(|offset| offset + 8)));
        for (register, offset) in
            [(bits(word, 0, 5), offset)].into_iter().chain(second).filter(|_| is_pair || is_word)
        {
            if let (Some(found), Some(offset)) = (found.get_mut(register as usize), offset) {
                found.get_or_insert(offset);
            }
        }
        let lost = |(register, found): (u32, &Option<u64>)| {
            found.is_none() && written(kind).contains(&Some(register))
        };
        if (0..).zip(&found).any(lost) {
            return None;
        }
    }
    let stores: Vec<_> = list.iter().filter_map(|(_, word)| touched(*word)).collect();
    let words = [found[0]?, found[1]?];
    super::are_kept(words, &stores).then_some(words)
}

fn return_site(rest: &[(u64, u32)], targets: &HashSet<u64>) -> Return {
    let mut found = Return::NONE;
    for (address, word) in rest.iter().copied().take(MAX_STRAIGHT_LINE) {
        // A branch target, such as the condition of a loop: it is not only reached by the call's return.
        if targets.contains(&address) {
            break;
        }
        let kind = kind(word, address);
        match kind {
            // Emulated, and always executed themselves, wherever they lead.
            Kind::Branch { .. } | Kind::Call { .. } | Kind::CallRegister { .. } | Kind::Address { .. } => {
                return Return { site: Some(address), ..found };
            }
            Kind::Leave | Kind::Return => break,
            _ => {}
        }
        for register in written(kind).into_iter().flatten().filter(|register| *register < INTEGER_REGISTERS) {
            found.overwritten |= 1 << register;
        }
        found.stored = found.stored.min(stored(word).unwrap_or(u64::MAX));
    }
    found
}

/// Offset from the stack pointer of an instruction's store, if it is one; 0 for stores that are not decoded.
fn stored(word: u32) -> Option<u64> {
    let is_store = bits(word, 27, 1) == 1 && bits(word, 25, 1) == 0 && bits(word, 5, 5) == STACK_POINTER;
    let immediate = u64::from(bits(word, 10, 12));
    match word & 0xffc0_0000 {
        // str xT, str wT
        0xf900_0000 if is_store => Some(immediate * 8),
        0xb900_0000 if is_store => Some(immediate * 4),
        // ldr xT, ldr wT
        0xf940_0000 | 0xb940_0000 => None,
        // stp xT, xU: a signed immediate of seven bits.
        0xa900_0000 if is_store => {
            u64::try_from(displaced(0, bits(word, 15, 7), 7).cast_signed() * 2).ok().or(Some(0))
        }
        // ldp xT, xU
        0xa940_0000 => None,
        _ => is_store.then_some(0),
    }
}

/// Offset from the stack pointer and length of what a store touches; everything, if it is not decoded.
fn touched(word: u32) -> Option<(u64, u64)> {
    stored(word)?;
    let is_pair = word & 0x3a00_0000 == 0x2800_0000;
    let is_vector = bits(word, 26, 1) == 1;
    let loads = if is_pair || is_vector { bits(word, 22, 1) == 1 } else { bits(word, 22, 2) != 0 };
    if loads {
        return None;
    }
    let scale = bits(word, 30, 2);
    Some(match word & 0x3f00_0000 {
        0x3900_0000 => (u64::from(bits(word, 10, 12)) << scale, 1 << scale),
        _ if word & 0xffc0_0000 == 0xa900_0000 => (stored(word)?, 16),
        _ => (0, u64::MAX),
    })
}

fn written(kind: Kind) -> [Option<u32>; 2] {
    match kind {
        Kind::Address { register, .. }
        | Kind::Load { register, .. }
        | Kind::Move { register, .. }
        | Kind::Add { register, .. }
        | Kind::Constant { register, .. } => [Some(register), None],
        Kind::Other { first, second } => [first, second],
        _ => [None, None],
    }
}

/// Address in R0 and length in R1 at the first return: the string that a function returns.
pub(super) fn constant_string(code: &[u8], address: u64) -> Option<(u64, u64)> {
    let mut values: [Option<u64>; 32] = [None; 32];
    for (address, word) in words(code, address) {
        let kind = kind(word, address);
        let value = match kind {
            Kind::Return => return values[0].zip(values[1]),
            Kind::Address { address, .. } => Some(address),
            Kind::Add { from, immediate, .. } => {
                values[from as usize].map(|value| value.wrapping_add(immediate))
            }
            Kind::Constant { value, .. } => Some(value),
            Kind::Move { from, .. } => values[from as usize],
            _ => None,
        };
        for register in written(kind).into_iter().flatten() {
            values[register as usize] = value;
        }
    }
    None
}

/// All instructions.
pub(super) fn list(code: &[u8], address: u64) -> Vec<Instruction> {
    let list = words(code, address).map(|(address, word)| {
        let (operation, target) = match kind(word, address) {
            Kind::Branch { target, .. } => (Operation::Jump, Some(target)),
            Kind::Call { target } => (Operation::Call, Some(target)),
            Kind::CallRegister { .. } => (Operation::Call, None),
            Kind::Leave => (Operation::Jump, None),
            Kind::Return => (Operation::Return, None),
            Kind::Address { .. }
            | Kind::Load { .. }
            | Kind::Move { .. }
            | Kind::Add { .. }
            | Kind::Constant { .. }
            | Kind::Other { .. } => (Operation::Other, None),
        };
        Instruction { address, operation, class: class(word), target }
    });
    list.collect()
}

/// All instructions: decoded kinds as text, the others as a word.
pub(super) fn texts(code: &[u8], address: u64) -> Vec<String> {
    let texts = words(code, address).map(|(address, word)| match kind(word, address) {
        Kind::Branch { target, conditional: false } => format!("b {target:#x}"),
        Kind::Branch { target, conditional: true } => format!("b.cond/cbz/tbz {target:#x}"),
        Kind::Call { target } => format!("bl {target:#x}"),
        Kind::CallRegister { register } => format!("blr x{register}"),
        Kind::Return => "ret".to_owned(),
        Kind::Address { register, address } => format!("adr(p) x{register}, {address:#x}"),
        Kind::Load { register, base, offset } => {
            format!("ldr x{register}, [{}, #{offset}]", name(base))
        }
        Kind::Move { register, from } => format!("mov x{register}, x{from}"),
        Kind::Add { register, from, immediate } => {
            format!("add x{register}, {}, #{immediate}", name(from))
        }
        Kind::Constant { register, value } => format!("mov x{register}, #{value}"),
        Kind::Leave | Kind::Other { .. } => format!(".inst {word:#010x}"),
    });
    texts.collect()
}

fn name(base: u32) -> String {
    if base == STACK_POINTER { "sp".to_owned() } else { format!("x{base}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn branches_are_emulated_and_stores_are_not() {
        // b, bl, cbz, tbz, b.eq, adrp, ret, blr
        for word in [
            0x1400_0001,
            0x9400_0001,
            0xb400_0040,
            0x3600_0040,
            0x5400_0040,
            0xb000_0000,
            0xd65f_03c0,
            0xd63f_0060,
        ] {
            assert_eq!(class(word), Class::Emulated, "{word:#x}");
        }
        // str x30, [sp, #-32]!; add x0, x0, #1; ldr x0, [x1]; nop
        for word in [0xf81e_0ffe, 0x9100_0400, 0xf940_0020, 0xd503_201f] {
            assert_eq!(class(word), Class::SingleStepped, "{word:#x}");
        }
    }

    #[test]
    fn a_register_points_into_the_stack_until_it_is_written_or_something_is_called() {
        // add x1, sp, #64
        let with = |word| stack_argument(&code(&[0x9101_03e1, word]), 0x1000, 1);
        assert_eq!(with(0xf900_0020), Some(64)); // str x0, [x1]
        assert_eq!(with(0xaa00_03e1), None); // mov x1, x0
        assert_eq!(with(0x9400_0001), None); // bl
    }

    #[test]
    fn a_call_through_an_itab_has_its_slot() {
        // ldr x3, [x2, #24]; blr x3; mov x1, x0; cbz x0, .+8
        let calls = calls(&code(&[0xf940_0c43, 0xd63f_0060, 0xaa00_03e1, 0xb400_0040]), 0x1000);
        assert_eq!(calls.len(), 1);
        let Call { callee, site, resume, return_site, overwritten, stored } = calls[0];
        assert_eq!(callee, Callee::Indirect { offset: 24, base: None });
        assert_eq!((site.address, resume, return_site), (0x1004, 0x1008, Some(0x100c)));
        assert_eq!((overwritten, stored), (1 << 1, u64::MAX));
    }

    #[test]
    fn results_are_kept_where_they_are_stored_and_not_overwritten() {
        let kept = |rest: &[u32]| stored_results(&code(rest), 0x1000);
        let pair = 0xa903_07e0; // stp x0, x1, [sp, #48]
        assert_eq!(kept(&[pair, 0x9400_0001]), Some([48, 56]));
        // str x1, [sp, #40]; str x0, [sp, #64]; bl; strb w2, [sp, #72]; ldr x30, [sp], #16
        let each = [0xf900_17e1, 0xf900_23e0, 0x9400_0001, 0x3901_23e2, 0xf841_07fe];
        assert_eq!(kept(&each), Some([64, 40]));
        assert_eq!(kept(&[0xf900_17e0, 0x9400_0001, 0xf900_23e1]), None); // bl in between
        assert_eq!(kept(&[0xaa02_03e0, pair]), None); // mov x0, x2
        assert_eq!(kept(&[pair, 0x9400_0001, 0x3900_e3e2]), None); // strb w2, [sp, #56]
        assert_eq!(kept(&[pair, 0x9400_0001, 0x3d80_03e0]), None); // str q0, [sp]
        assert_eq!(kept(&[pair, 0x9400_0001, 0x3dc0_03e0]), Some([48, 56])); // ldr q0, [sp]
    }

    #[test]
    fn the_lowest_stack_write_after_a_call_is_found() {
        let stored = |word: u32| {
            // bl .+8; the instruction; cbz x0, .+8
            calls(&code(&[0x9400_0002, word, 0xb400_0040]), 0x1000)[0].stored
        };
        assert_eq!(stored(0xf900_17e0), 40); // str x0, [sp, #40]
        assert_eq!(stored(0xa903_07e0), 48); // stp x0, x1, [sp, #48]
        assert_eq!(stored(0xf940_17e0), u64::MAX); // ldr x0, [sp, #40]
        assert_eq!(stored(0xf900_1660), u64::MAX); // str x0, [x19, #40]
        assert_eq!(stored(0xf81f_0fe0), 0); // str x0, [sp, #-16]!
        assert_eq!(stored(0x3d80_03e0), 0); // str q0, [sp]
    }

    #[test]
    fn a_direct_call_backwards_has_its_target() {
        // bl .-8; ret
        let calls = calls(&code(&[0x97ff_fffe, 0xd65f_03c0]), 0x1000);
        assert_eq!((calls[0].callee, calls[0].return_site), (Callee::Direct(0xff8), None));
    }

    #[test]
    fn a_function_that_returns_a_constant_string_is_read() {
        // adrp x0, .+0x1000; add x0, x0, #0x23; orr x1, xzr, #7; ret
        let body = code(&[0xb000_0000, 0x9100_8c00, 0xb240_0be1, 0xd65f_03c0]);
        assert_eq!(constant_string(&body, 0x1000), Some((0x2023, 7)));
        // mov x1, #17 by movz
        let body = code(&[0xb000_0000, 0x9100_8c00, 0xd280_0221, 0xd65f_03c0]);
        assert_eq!(constant_string(&body, 0x1000), Some((0x2023, 17)));
    }

    #[test]
    fn large_and_small_frames_are_recognised() {
        assert_eq!(frame_set_up(&code(&[0xf81e_0ffe])), Ok(4));
        assert_eq!(frame_set_up(&code(&[0x9100_029f])), Ok(4)); // mov sp, x20
        assert!(frame_set_up(&code(&[0xd503_201f])).is_err());
        assert!(frame_set_up(&[1, 2]).is_err());
    }
}
