//! TLS, where the server is told a certificate and its key.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and its root.
    pub certificate: PathBuf,
    /// Its key; not readable by others.
    pub key: PathBuf,
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}

/// What takes connections under this certificate: HTTP/2 or HTTP/1.1, as the client likes.
///
/// # Errors
/// A file cannot be read, is none such, does not fit the other, or the key is readable by everybody.
pub(super) fn acceptor(files: &TlsFiles) -> io::Result<TlsAcceptor> {
    let TlsFiles { certificate, key } = files;
    let mode = std::fs::metadata(key).map_err(|error| unusable(key, &error))?.mode();
    if mode & 0o007 != 0 {
        return Err(unusable(key, &"everybody may read or change the key: `chmod o= ` it"));
    }
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unusable(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| unusable(certificate, &error))?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, secret).map_err(|error| unusable(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
