//! Tables that only a person asks for: the build packs them, and who reads one unpacks it.
//!
//! 156 KB of explanations and attacks take 40 KB of the program. What a run or the gate reads at its start is not packed.

use serde::de::{DeserializeOwned, Error as _};

/// Bytes of a table, unpacked. The build makes them, so nothing longer is one of ours.
const MOST: usize = 1 << 20;

/// `resources/explain.toml`.
pub(crate) const EXPLANATIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/explain.packed"));
/// All of `resources/attacks`, in the order of the catalogue.
pub(crate) const ATTACKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/attacks.packed"));

/// Unpacks a table and reads it.
///
/// # Errors
/// The program was built wrong.
pub(crate) fn read<T: DeserializeOwned>(packed: &[u8]) -> Result<T, toml::de::Error> {
    let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(packed, MOST)
        .map_err(|error| toml::de::Error::custom(format!("it cannot be unpacked: {error}")))?;
    toml::from_slice(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_cut_is_an_error() {
        for cut in [0, 1, EXPLANATIONS.len() / 2, EXPLANATIONS.len() - 1] {
            assert!(read::<toml::Table>(&EXPLANATIONS[..cut]).is_err(), "{cut} bytes of it");
        }
    }

    #[test]
    fn a_table_comes_back_as_it_is_in_its_file() {
        let file = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/explain.toml"));
        assert_eq!(read::<toml::Table>(EXPLANATIONS).unwrap(), toml::from_str(file).unwrap());
    }
}
