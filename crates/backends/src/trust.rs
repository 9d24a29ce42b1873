//! Where programs look for the certificates that they trust.

/// The bundle below `/run/fumehood`.
pub(crate) const FILE: &str = "ca.pem";
/// The same, as programs are told of it.
pub(crate) const BUNDLE: &str = "/run/fumehood/ca.pem";
/// Java's store below `/run/fumehood`.
pub(crate) const JAVA_FILE: &str = "ca.jks";
/// How Java is told of it.
pub(crate) const JAVA: &str = "-Djavax.net.ssl.trustStore=/run/fumehood/ca.jks";
/// The folder of `/etc` with the machine's bundle, as far as we replace it.
pub(crate) const FOLDER: &str = "ssl";
/// The bundles of the machine that programs read without being told.
pub(crate) const BUNDLES: [&str; 1] = ["/etc/ssl/certs/ca-certificates.crt"];
/// Variables that name a bundle: OpenSSL, Python and requests, pip, Node, curl, git, cargo, the SDKs of AWS and Google, Deno,
/// gRPC, Nix, Ruby's bundler, Perl, Julia, conda. A policy that sets one is not overruled.
pub(crate) const VARIABLES: [&str; 16] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NIX_SSL_CERT_FILE",
    "BUNDLE_SSL_CA_CERT",
    "PERL_LWP_SSL_CA_FILE",
    "JULIA_SSL_CA_ROOTS_PATH",
    "CONDA_SSL_VERIFY",
];
