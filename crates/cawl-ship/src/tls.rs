//! TLS to PostgreSQL, as its own clients have it: encrypted, and who answers is checked where that is asked
//! for.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What is checked of who answers.
pub enum Tls {
    /// Nothing (`sslmode=require` and `prefer`).
    Unchecked,
    /// Name and certificate, by the system's certificates, or those of SSL_CERT_FILE.
    System,
    /// By the certificates in a file.
    Of(PathBuf),
}

impl Tls {
    /// For a connection.
    pub fn connector(&self) -> anyhow::Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match self.roots()? {
            Some(roots) => config.with_root_certificates(roots),
            None => config.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
        };
        Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
    }

    fn roots(&self) -> anyhow::Result<Option<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        match self {
            Tls::Unchecked => return Ok(None),
            Tls::System => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                ensure!(
                    !roots.is_empty(),
                    "this system has no certificates: name some with sslrootcert=FILE"
                );
            }
            Tls::Of(file) => {
                let mut read = || {
                    for certificate in CertificateDer::pem_file_iter(file)? {
                        roots.add(certificate?)?;
                    }
                    anyhow::Ok(roots.len())
                };
                let count =
                    read().with_context(|| format!("cannot read certificates in {}", file.display()))?;
                ensure!(count > 0, "there is no certificate in {}", file.display());
            }
        }
        Ok(Some(roots))
    }
}

/// Takes every certificate; the server still has to have its key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
