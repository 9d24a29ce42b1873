//! The certificate authority of one run: TLS of opened rules ends in the broker, under certificates that this run alone trusts.
//!
//! Its key is made for the run, is held in memory only and goes with it. The certificate says itself for which names it may sign
//! (name constraints), so that what trusts it inside trusts it for opened hosts alone.

use std::time::{Duration, SystemTime};

use policy::value::{Net, NetRule, Target};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use zeroize::Zeroizing;

use crate::wire::{Key, Opening};

/// How long before the start a certificate is valid: the clock inside may be behind.
const BEFORE: Duration = Duration::from_hours(24);
/// How long it is valid; a sandbox that lives longer is to be started anew.
const VALID: Duration = Duration::from_hours(24 * 365);

/// A leaf certificate and its key, both DER.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// The key, PKCS #8; the same for all of a run.
    pub key: Zeroizing<Vec<u8>>,
}

/// Signs for the names of opened rules.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    names: Vec<String>,
    leaf: KeyPair,
}

/// The names below which TLS is opened: of rules that judge requests, and hosts that secrets are for. `*.x` and `**.x` lie below
/// `x`.
#[must_use]
pub fn names<'a>(net: &'a Net, secrets: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let host = |rule: &'a NetRule| match &rule.to {
        Target::Host(host) => Some(host.as_str()),
        Target::Cidr(_) => None,
    };
    let hosts = net.opened().filter_map(host).chain(secrets);
    let mut names: Vec<String> =
        hosts.map(|host| host.trim_start_matches('*').trim_start_matches('.').to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Makes the authority of a run for these [`names`], with the roots by which the broker verifies servers.
///
/// # Errors
/// The machine has no randomness, or a name cannot stand in a certificate.
pub fn make(names: Vec<String>, roots: String) -> Result<Opening, String> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
    let certificate = own(&names)?.self_signed(&key).map_err(|error| error.to_string())?.pem();
    Ok(Opening { certificate, key: Key(Zeroizing::new(key.serialize_pem())), names, roots })
}

fn dated() -> Result<CertificateParams, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BEFORE);
    params.not_after = date_time_ymd(1970, 1, 1) + now.saturating_add(VALID);
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

fn own(names: &[String]) -> Result<CertificateParams, String> {
    let mut params = dated()?;
    params.distinguished_name.push(DnType::CommonName, "Fumehood authority of one run");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let permitted_subtrees = names.iter().cloned().map(GeneralSubtree::DnsName).collect();
    // No name of the list is an address: without this, certificates for any address would be its own to sign.
    let addresses = [CidrSubnet::V4([0; 4], [0; 4]), CidrSubnet::V6([0; 16], [0; 16])];
    let excluded_subtrees = addresses.map(GeneralSubtree::IpAddress).to_vec();
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees });
    Ok(params)
}

impl Authority {
    /// The authority that the engine made.
    ///
    /// # Errors
    /// Its key cannot be read, or the machine has no randomness.
    pub fn read(opening: &Opening) -> Result<Self, String> {
        let key = KeyPair::from_pem(&opening.key.0).map_err(|error| error.to_string())?;
        let issuer = Issuer::new(own(&opening.names)?, key);
        let leaf = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
        Ok(Self { issuer, names: opening.names.clone(), leaf })
    }

    /// Whether it may sign for all of these [`names`].
    #[must_use]
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.signs_for(name))
    }

    fn signs_for(&self, name: &str) -> bool {
        self.names.iter().any(|own| name == own || name.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
    }

    /// A certificate for a name.
    ///
    /// # Errors
    /// The name cannot stand in a certificate, or is none that it may sign for.
    pub fn leaf(&self, name: &str) -> Result<Leaf, String> {
        if !self.signs_for(name) {
            return Err(format!("the run's authority does not sign for {name}"));
        }
        let mut params = dated()?;
        params.subject_alt_names =
            vec![rcgen::SanType::DnsName(name.try_into().map_err(|error: rcgen::Error| error.to_string())?)];
        params.distinguished_name.push(DnType::CommonName, "Fumehood");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.leaf, &self.issuer).map_err(|error| error.to_string())?.der().to_vec();
        Ok(Leaf { certificate, key: Zeroizing::new(self.leaf.serialize_der()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_signs_for_opened_names_alone_and_shows_no_key() {
        let allow = r#"[{ "host": "*.a.test", "methods": ["GET"] }, { "host": "b.test" }]"#;
        let allow: serde_json::Value = serde_json::from_str(allow).unwrap();
        let net = Net::from_document(&serde_json::json!({ "mode": "allow", "allow": allow })).unwrap();
        let opening = make(names(&net, ["**.c.test"]), String::new()).unwrap();
        assert_eq!(opening.names, ["a.test", "c.test"]);
        let authority = Authority::read(&opening).unwrap();
        assert!(authority.leaf("x.a.test").is_ok() && authority.leaf("a.test").is_ok());
        for other in ["b.test", "xa.test", "a.test.evil", "test", ""] {
            assert!(authority.leaf(other).is_err(), "{other}");
        }
        assert!(authority.covers(&names(&net, ["c.test"])) && !authority.covers(&names(&net, ["d.test"])));
        let shown = format!("{opening:?}");
        assert!(!shown.contains("PRIVATE") && !format!("{authority:?}").contains("PRIVATE"), "{shown}");
    }
}
