//! What a trap costs on this machine: measured on two functions of this program, with cold caches, as a traced program's are
//! when it has worked between two hits.

use std::{fs, hint::black_box, path::Path, time::Instant};

use aya::{
    Ebpf,
    programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};
use goexe::{Class, Instruction, Machine, Operation, instructions};
use memmap2::MmapMut;

use super::{Error, uprobe};
use crate::governor::meter::Traps;

/// This program.
const SELF: &str = "/proc/self/exe";
/// Calls of each function, with a probe and without.
const ROUNDS: usize = 32;
/// Calls of a function with warm caches.
const WARM_ROUNDS: usize = 1024;
/// Bytes that are read between two calls: about a CPU's own cache.
const CACHE: usize = 2 << 20;
const CACHE_LINE: usize = 64;
/// Bytes of a function that are looked at.
const CODE: usize = 96;
#[cfg(target_arch = "x86_64")]
const MACHINE: Machine = Machine::Amd64;
#[cfg(target_arch = "aarch64")]
const MACHINE: Machine = Machine::Arm64;

// Two functions with other constants, or the compiler makes them one.

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

// Two that are alike, with a `push` and a jump that each call executes.

#[inline(never)]
fn pushing(number: u64) -> u64 {
    if called(number) == 0 { called(black_box(3)) } else { number.wrapping_add(3) }
}

#[inline(never)]
fn jumping(number: u64) -> u64 {
    if called(number) == 0 { called(black_box(4)) } else { number.wrapping_add(4) }
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
    let mut places = functions
        .iter()
        .zip(classes)
        .map(|(function, class)| place(&maps, *function, |it| it.class == class));
    let (Some(Some(first)), Some(Some(second))) = (places.next(), places.next()) else { return Ok(None) };
    // Not of the allocator, which would keep it.
    let Ok(mut cache) = MmapMut::map_anon(CACHE) else { return Ok(None) };
    cache.fill(1);
    let measured = || times(functions, ROUNDS, &cache);
    let without = measured();
    let with = probed(ebpf, program, &[first, second], measured)?;
    let [emulated_ns, single_stepped_ns] = [0, 1].map(|which| with[which].saturating_sub(without[which]));
    Ok((emulated_ns > 0 && single_stepped_ns > 0).then_some(Traps {
        emulated_ns,
        single_stepped_ns,
        is_measured: true,
    }))
}

/// How much longer a probe on a `push` takes than one on a jump, nanoseconds: the kernel emulates both, and writes to the stack for
/// one of them. With warm caches, as between two probes of a call. 0 where there is no such instruction.
///
/// # Errors
///
/// When the kernel refuses.
pub(super) fn push_more_ns(ebpf: &mut Ebpf, program: &'static str) -> Result<u64, Error> {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return Ok(0) };
    let emulated = |function, operation| {
        place(&maps, function, move |it| it.class == Class::Emulated && it.operation == operation)
    };
    let (Some(push), Some(jump)) = (emulated(pushing, Operation::Push), emulated(jumping, Operation::Jump))
    else {
        return Ok(0);
    };
    // In turns: what else the machine does slows both.
    let [push_ns, jump_ns] =
        probed(ebpf, program, &[push, jump], || times([pushing, jumping], WARM_ROUNDS, &[]))?;
    Ok(push_ns.saturating_sub(jump_ns))
}

/// The result of `measure` with probes at these places of this program.
fn probed<T>(
    ebpf: &mut Ebpf,
    program: &'static str,
    places: &[u64],
    measure: impl Fn() -> T,
) -> Result<T, Error> {
    let points = places.iter().map(|offset| UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(*offset),
        cookie: Some(0),
    });
    let link = uprobe(ebpf, program)?.attach(points, Path::new(SELF), UProbeScope::AllProcesses)?;
    let measured = measure();
    uprobe(ebpf, program)?.detach(link)?;
    Ok(measured)
}

/// The median times of calls in turns, each after this much memory was read, nanoseconds.
fn times(functions: [fn(u64) -> u64; 2], rounds: usize, cache: &[u8]) -> [u64; 2] {
    let mut times = [const { Vec::new() }; 2];
    for round in 0..rounds as u64 {
        for (function, times) in functions.iter().zip(&mut times) {
            black_box(cache.iter().step_by(CACHE_LINE).map(|byte| u64::from(*byte)).sum::<u64>());
            let began = Instant::now();
            black_box(function(round));
            times.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// The offset in this program's file of such an instruction that each call of the function executes.
fn place(maps: &str, function: fn(u64) -> u64, is_it: impl Fn(&Instruction) -> bool) -> Option<u64> {
    let offset = offset(maps, function as usize as u64)?;
    let mut code = [0; CODE];
    let file = fs::File::open(SELF).ok()?;
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut code, offset).ok()?;
    let all = instructions(MACHINE, &code[..read], offset);
    // Up to the first jump, all are executed: calls return.
    let is_end = |it: &Instruction| matches!(it.operation, Operation::Return | Operation::Jump);
    let end = all.iter().position(is_end)?;
    all[..=end].iter().find(|instruction| is_it(instruction)).map(|found| found.address)
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
        let has = |function, class| place(&maps, function, |it| it.class == class).is_some();
        assert!(has(emulated, Class::Emulated));
        assert!(has(single_stepped, Class::SingleStepped));
        assert_eq!((emulated(1), single_stepped(1), pushing(1), jumping(1)), (2, 3, 4, 5));
    }
}
