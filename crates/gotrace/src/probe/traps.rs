//! What a trap costs on this machine: measured on functions of this program, with cold caches, as a traced program's are when it
//! has worked between two hits.

use std::{fs, hint::black_box, path::Path, time::Instant};

use aya::{
    Ebpf,
    programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};
use goexe::{Class, Instruction, Machine, instructions};

use super::{Error, uprobe};
use crate::governor::meter::Traps;

/// This program.
const SELF: &str = "/proc/self/exe";
/// Calls of each function, with a probe and without.
const ROUNDS: usize = 32;
/// Bytes that are read between two calls: about a CPU's own cache.
const CACHE: usize = 2 << 20;
/// Those of its first level: a call of a plugin, which takes less than a microsecond, reads no more.
const FIRST_CACHE: usize = 32 << 10;
/// Calls for a difference that is a fraction of a trap.
const MANY_ROUNDS: usize = 512;
const CACHE_LINE: usize = 64;
/// Bytes of a function that are looked at.
const CODE: usize = 96;
#[cfg(target_arch = "x86_64")]
const MACHINE: Machine = Machine::Amd64;
#[cfg(target_arch = "aarch64")]
const MACHINE: Machine = Machine::Arm64;

// Functions with other constants, or the compiler makes them one.

#[inline(never)]
fn called(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
fn emulated(number: u64) -> u64 {
    called(black_box(number)).wrapping_add(1)
}

#[inline(never)]
fn single_stepped(number: u64) -> u64 {
    called(black_box(number)).wrapping_add(2)
}

/// Its values live across calls, in registers that it saves first of all: instructions that follow one another, which the kernel
/// emulates.
#[inline(never)]
fn in_a_row(number: u64) -> u64 {
    let values = [called(number), called(number.wrapping_add(3)), called(number.wrapping_add(4))];
    values.map(called).iter().fold(called(number), |sum, value| sum.wrapping_mul(5).wrapping_add(*value))
}

/// Measures with this eBPF program, which ends at once because this process is not traced. `None` if the functions have no such
/// instruction.
///
/// # Errors
///
/// When the kernel refuses.
pub(super) fn measure(ebpf: &mut Ebpf, program: &'static str) -> Result<Option<Traps>, Error> {
    let functions: [fn(u64) -> u64; 2] = [emulated, single_stepped];
    let classes = [Class::Emulated, Class::SingleStepped];
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return Ok(None) };
    let mut places =
        functions.iter().zip(classes).map(|(function, class)| place(&maps, *function as usize as u64, class));
    let (Some(Some(first)), Some(Some(second))) = (places.next(), places.next()) else { return Ok(None) };
    let cache = vec![1_u8; CACHE];
    let times = || functions.map(|function| time(function, &cache, ROUNDS));
    let without = times();
    let with = probed(ebpf, program, &[first, second], times)?;
    let [emulated_ns, single_stepped_ns] = [0, 1].map(|which| with[which].saturating_sub(without[which]));
    Ok((emulated_ns > 0 && single_stepped_ns > 0).then_some(Traps {
        emulated_ns,
        single_stepped_ns,
        is_measured: true,
    }))
}

/// What a trap at an instruction that the kernel emulates costs more, if the program has run since the last one, than right behind
/// another one, nanoseconds: the processor's caches and predictions are cold for both sides. `None` if the function has no such
/// instructions.
///
/// # Errors
///
/// When the kernel refuses.
pub(super) fn apart(ebpf: &mut Ebpf, program: &'static str) -> Result<Option<u64>, Error> {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return Ok(None) };
    let Some([first, second]) = adjacent(&maps) else { return Ok(None) };
    let cache = vec![1_u8; FIRST_CACHE];
    let times = || time(in_a_row, &cache, MANY_ROUNDS);
    let none = times();
    let one = probed(ebpf, program, &[first], times)?;
    let both = probed(ebpf, program, &[first, second], times)?;
    Ok(Some(one.saturating_sub(none).saturating_sub(both.saturating_sub(one))))
}

/// Runs `what` with probes at these places of this program.
fn probed<T>(
    ebpf: &mut Ebpf,
    program: &'static str,
    offsets: &[u64],
    what: impl FnOnce() -> T,
) -> Result<T, Error> {
    let point = |offset: &u64| UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(*offset),
        cookie: Some(0),
    };
    let link = uprobe(ebpf, program)?.attach(
        offsets.iter().map(point),
        Path::new(SELF),
        UProbeScope::AllProcesses,
    )?;
    let result = what();
    uprobe(ebpf, program)?.detach(link)?;
    Ok(result)
}

/// The median time of a call with cold caches, nanoseconds.
fn time(function: fn(u64) -> u64, cache: &[u8], rounds: usize) -> u64 {
    let mut times: Vec<u64> = (0..rounds as u64)
        .map(|round| {
            black_box(cache.iter().step_by(CACHE_LINE).map(|byte| u64::from(*byte)).sum::<u64>());
            let began = Instant::now();
            black_box(function(round));
            u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The offsets in this program's file of two emulated instructions of [`in_a_row`] that follow one another.
fn adjacent(maps: &str) -> Option<[u64; 2]> {
    let all = places(maps, in_a_row as fn(u64) -> u64 as usize as u64, Class::Emulated)?;
    let in_a_row = all.array_windows().find(|[(_, one), (_, next)]| *next == one + 1);
    in_a_row.map(|pair| pair.map(|(offset, _)| offset))
}

/// The offset in this program's file of an instruction of this class that each call of the function executes.
fn place(maps: &str, function: u64, class: Class) -> Option<u64> {
    Some(places(maps, function, class)?.first()?.0)
}

/// The offsets of all such instructions, and which of the function's they are.
fn places(maps: &str, function: u64, class: Class) -> Option<Vec<(u64, usize)>> {
    let offset = offset(maps, function)?;
    let mut code = [0; CODE];
    let file = fs::File::open(SELF).ok()?;
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut code, offset).ok()?;
    let all = instructions(MACHINE, &code[..read], offset);
    // Up to the first jump, all are executed: calls return.
    let jumps = |text: &str| !["call", "bl "].iter().any(|call| text.starts_with(call));
    let is_end = |it: &Instruction| it.text.starts_with("ret") || it.target.is_some() && jumps(&it.text);
    let end = all.iter().position(is_end).unwrap_or(all.len());
    let executed = all.iter().take(end + 1).enumerate();
    Some(executed.filter(|(_, it)| it.class == class).map(|(number, it)| (it.address, number)).collect())
}

/// The offset in its file of what is at an address, by `/proc/PID/maps`.
fn offset(maps: &str, address: u64) -> Option<u64> {
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).ok());
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        (start?..end?).contains(&address).then_some(address.checked_sub(start?)?.checked_add(offset)?)
    };
    maps.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_offset_in_its_file() {
        let maps =
            "00400000-00452000 r-xp 00001000 08:02 173521 /usr/bin/x\n7f00-7f10 rw-p 00000000 00:00 0\n";
        assert_eq!(offset(maps, 0x40_0123), Some(0x1123));
        assert_eq!(offset(maps, 0x7f01), Some(1));
        assert_eq!(offset(maps, 0x45_2000), None);
        assert_eq!(offset("x\n1-z r 0\n", 1), None);
    }

    #[test]
    fn the_own_functions_have_an_instruction_of_each_class() {
        let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
        let place = |function: fn(u64) -> u64, class| place(&maps, function as usize as u64, class);
        assert!(place(emulated, Class::Emulated).is_some());
        assert!(place(single_stepped, Class::SingleStepped).is_some());
        assert_eq!((emulated(1), single_stepped(1)), (2, 3));
    }

    #[test]
    fn the_own_function_has_two_emulated_instructions_in_a_row() {
        let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
        let found = adjacent(&maps);
        if cfg!(all(target_arch = "x86_64", not(debug_assertions))) {
            let [first, second] = found.expect("it saves registers first of all");
            assert!(first < second && second - first <= 2, "{first:#x}, {second:#x}");
        }
        assert_eq!(in_a_row(0), 3 * 5 + 4);
    }
}
