//! TLS of opened rules: ended on the program's side with certificates of the run's own authority, and begun anew on the
//! server's side, which is verified by the machine's roots and those of `net.ca`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use egress::authority::Authority;
use egress::wire::Opening;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Certificates that are kept; a run has no more names than this at once.
const MAX_LEAVES: usize = 1024;
/// How long a program may take for its half of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What ALPN calls HTTP/1.1.
const ONE: &[u8] = b"http/1.1";
/// What ALPN calls HTTP/2.
pub(crate) const TWO: &[u8] = b"h2";

/// What opens TLS in a run.
pub(crate) struct Tls {
    authority: Authority,
    digest: String,
    /// For programs that speak HTTP/1 alone.
    client: Arc<ClientConfig>,
    /// For those that speak HTTP/2.
    client_of_two: Arc<ClientConfig>,
    leaves: RefCell<HashMap<String, Arc<ServerConfig>>>,
}

impl Tls {
    /// From what the engine sent.
    ///
    /// # Errors
    /// A key or a root cannot be read, or there is no root.
    pub(crate) fn new(opening: &Opening) -> Result<Self, String> {
        let authority = Authority::read(opening)?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(opening.roots.as_bytes()) {
            // Stores of machines hold some that nobody can use; what is left out is not trusted.
            drop(roots.add(root.map_err(|error| error.to_string())?));
        }
        if roots.is_empty() {
            return Err("there is no root certificate by which a server could be verified".to_owned());
        }
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut client =
            builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![ONE.to_vec()];
        let mut client_of_two = client.clone();
        client_of_two.alpn_protocols = vec![TWO.to_vec(), ONE.to_vec()];
        let digest = opening.digest()?;
        Ok(Self {
            authority,
            digest,
            client: Arc::new(client),
            client_of_two: Arc::new(client_of_two),
            leaves: RefCell::default(),
        })
    }

    /// SHA-256 of the authority's certificate.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether it can open TLS for these names.
    pub(crate) fn covers(&self, names: &[String]) -> bool {
        self.authority.covers(names)
    }

    fn leaf(&self, name: &str) -> Result<Arc<ServerConfig>, String> {
        if let Some(known) = self.leaves.borrow().get(name) {
            return Ok(Arc::clone(known));
        }
        let leaf = self.authority.leaf(name)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.to_vec()));
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config = builder
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(leaf.certificate)], key)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![TWO.to_vec(), ONE.to_vec()];
        let config = Arc::new(config);
        let mut leaves = self.leaves.borrow_mut();
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        leaves.insert(name.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    /// The server's half towards a program that asked for `name`.
    pub(crate) async fn accept<S>(&self, name: &str, stream: S) -> io::Result<server::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.leaf(name).map_err(io::Error::other)?;
        timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await?
    }

    /// The client's half towards the server of `name`; why it is not to be trusted, or did not answer by then.
    pub(crate) async fn connect<S>(
        &self,
        (name, two): (&str, bool),
        stream: S,
        until: Instant,
    ) -> Result<client::TlsStream<S>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let config = if two { &self.client_of_two } else { &self.client };
        let connecting = TlsConnector::from(Arc::clone(config)).connect(server, stream);
        match timeout_at(until, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(format!("its TLS cannot be trusted: {error}")),
            Err(_) => Err("its TLS handshake took too long".to_owned()),
        }
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
