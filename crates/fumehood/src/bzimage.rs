//! The kernel within the file that a package has of it: what the file's own first steps would unpack
//! (Documentation/arch/x86/boot.rst). It comes out of a package whose signature was checked; all the same every length is bounded.

use std::io::Read as _;

/// Largest kernel, bytes.
const MAX_KERNEL: usize = 256 << 20;
/// The first bytes of an unpacked one.
const ELF: &[u8] = b"\x7fELF";
/// Of what was packed by zstd.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Of what was packed by the old program `lz4`: blocks, each behind its length.
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
/// What a block of that is unpacked to at most.
const MAX_BLOCK: usize = 8 << 20;
/// The least that a repeated part is long.
const LEAST_MATCH: usize = 4;

/// The kernel as an ELF file.
///
/// # Errors
/// The file is none of the kind, or is packed by something else. In words.
pub(crate) fn unpacked(file: &[u8]) -> Result<Vec<u8>, String> {
    let packed = payload(file).ok_or("it is no kernel of the kind bzImage")?;
    let kernel = if packed.starts_with(ZSTD) {
        let mut kernel = Vec::new();
        // The length of all stands behind it, which is no part of it.
        let decoder = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|error| error.to_string())?;
        let most = u64::try_from(MAX_KERNEL).unwrap_or(u64::MAX);
        decoder.take(most).read_to_end(&mut kernel).map_err(|error| error.to_string())?;
        kernel
    } else if let Some(blocks) = packed.strip_prefix(LZ4) {
        of_blocks(blocks).ok_or("what is packed in it cannot be read")?
    } else {
        return Err("it is packed in a way that is not known".to_owned());
    };
    if kernel.starts_with(ELF) { Ok(kernel) } else { Err("what is packed in it is no kernel".to_owned()) }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(four.try_into().ok()?)).ok()
}

/// What is packed in it, behind the sectors of its set-up.
fn payload(file: &[u8]) -> Option<&[u8]> {
    const MAGIC: usize = 0x202;
    if file.get(MAGIC..MAGIC.checked_add(4)?)? != b"HdrS" {
        return None;
    }
    let sectors = usize::from(*file.get(0x1f1)?);
    let setup = if sectors == 0 { 4 } else { sectors };
    let start = setup.checked_add(1)?.checked_mul(512)?.checked_add(number(file, 0x248)?)?;
    file.get(start..start.checked_add(number(file, 0x24c)?)?)
}

/// The last four bytes are the length of all.
fn of_blocks(blocks: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, length) = blocks.split_at_checked(blocks.len().checked_sub(4)?)?;
    let whole = number(length, 0).filter(|whole| *whole <= MAX_KERNEL)?;
    let mut kernel = Vec::new();
    while !rest.is_empty() {
        let (block, after) = rest.get(4..)?.split_at_checked(number(rest, 0)?)?;
        block_into(&mut kernel, block)?;
        if kernel.len() > whole {
            return None;
        }
        rest = after;
    }
    (kernel.len() == whole).then_some(kernel)
}

/// One block: parts that are given, each but the last before one that is repeated.
fn block_into(kernel: &mut Vec<u8>, block: &[u8]) -> Option<()> {
    let (begin, mut rest) = (kernel.len(), block);
    loop {
        let (token, after) = rest.split_first()?;
        rest = after;
        let given = length(usize::from(*token >> 4), &mut rest)?;
        let (part, after) = rest.split_at_checked(given)?;
        kernel.extend_from_slice(part);
        rest = after;
        if rest.is_empty() {
            return Some(());
        }
        let (distance, after) = rest.split_at_checked(2)?;
        rest = after;
        let distance = usize::from(u16::from_le_bytes(distance.try_into().ok()?));
        let count = length(usize::from(*token & 15), &mut rest)?.checked_add(LEAST_MATCH)?;
        let made = kernel.len().checked_sub(begin)?;
        if distance == 0 || distance > made || made.checked_add(count)? > MAX_BLOCK {
            return None;
        }
        let mut from = kernel.len().checked_sub(distance)?;
        for _ in 0..count {
            // It may repeat what it has just made.
            kernel.push(*kernel.get(from)?);
            from = from.checked_add(1)?;
        }
    }
}

/// Four bits, and as many bytes behind them as say that there is more.
fn length(bits: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut length = bits;
    let mut more = bits == 15;
    while more {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        length = length.checked_add(usize::from(*byte))?;
        more = *byte == 255;
    }
    (length <= MAX_BLOCK).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that holds this.
    fn holding(packed: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 5 * 512];
        file[0x202..0x206].copy_from_slice(b"HdrS");
        file[0x248..0x24c].copy_from_slice(&8_u32.to_le_bytes());
        file[0x24c..0x250].copy_from_slice(&u32::try_from(packed.len()).unwrap().to_le_bytes());
        [file, vec![0; 8], packed.to_vec(), vec![7; 100]].concat()
    }

    fn lz4(block: &[u8], length: u32) -> Vec<u8> {
        let size = u32::try_from(block.len()).unwrap().to_le_bytes();
        holding(&[LZ4, &size, block, &length.to_le_bytes()].concat())
    }

    #[test]
    fn blocks_are_unpacked_with_what_they_repeat() {
        // 4 given, 4 + 15 + 3 repeated from one back; 1 given at the end.
        let block = [&[0x4f][..], b"\x7fELF", &[1, 0, 3], &[0x10, b'!']].concat();
        let whole = [&b"\x7fELF"[..], &[b'F'; 22], b"!"].concat();
        assert_eq!(unpacked(&lz4(&block, 27)), Ok(whole));
        assert!(unpacked(&lz4(&block, 26)).is_err(), "another length than is said");
        for (at, byte) in [(5, 9), (5, 0), (0, 0xff)] {
            let mut odd = block.clone();
            odd[at] = byte;
            assert!(unpacked(&lz4(&odd, 27)).is_err(), "{at}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_an_error() {
        for file in
            [Vec::new(), vec![0; 4096], holding(b"\x1f\x8bgzip"), holding(ZSTD), holding(LZ4), lz4(&[0x10, b'x'], 1)]
        {
            assert!(unpacked(&file).is_err());
        }
        let mut far = holding(b"");
        far[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(unpacked(&far).is_err());
    }

    /// The kernel that this host prepared, if it did.
    #[test]
    fn the_kernel_of_a_package_is_unpacked() {
        let folder = std::fs::read_dir("/var/lib/fumehood-machine").into_iter().flatten().flatten();
        let mut files = folder.map(|entry| std::fs::read(entry.path()).unwrap_or_default());
        let Some(kernel) = files.find(|bytes| payload(bytes).is_some()) else {
            eprintln!("skip: the kernel of a package: none was prepared on this host");
            return;
        };
        assert!(unpacked(&kernel).is_ok_and(|bytes| bytes.len() > kernel.len()));
    }
}
