//! TLS of our own connections, and what it asks of the client library's. There is no way from here to a plain connection:
//! whoever asks for TLS gets it or an error.

use super::options::RocketOptions;
use onceflow_types::Result;
use tokio::net::TcpStream;

#[cfg(feature = "tls")]
pub(super) use with_tls::TlsStream;

/// A connection's bytes.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

/// Makes streams out of sockets, as the options say.
#[derive(Clone)]
pub(super) struct Security {
    #[cfg(feature = "tls")]
    connector: Option<tokio_rustls::TlsConnector>,
}

impl Security {
    /// Reads the certificates.
    ///
    /// # Errors
    /// `Invalid` for TLS that this program was built without, and for certificates that cannot be read or used.
    pub(super) fn of(options: &RocketOptions) -> Result<Security> {
        options.check()?;
        #[cfg(feature = "tls")]
        let connector = options.tls.as_ref().map(with_tls::connector).transpose()?;
        Ok(Security {
            #[cfg(feature = "tls")]
            connector,
        })
    }

    /// Shakes hands with the server at `address`.
    ///
    /// # Errors
    /// `Invalid` when its certificate is not one to trust, `Retry` when it does not speak TLS or breaks off.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "plain sockets are ready"))]
    pub(super) async fn secure(&self, address: &str, socket: TcpStream) -> Result<Stream> {
        #[cfg(feature = "tls")]
        if let Some(connector) = &self.connector {
            return with_tls::shake_hands(connector, address, socket).await;
        }
        let _ = address;
        Ok(Stream::Plain(socket))
    }
}

/// What the client library must be told. Its own file of settings (`/etc/rocketmq/tls.properties`) is not read: it could
/// turn the check of certificates off without a word.
pub(super) fn tell(options: &RocketOptions, config: &mut rocketmq_client_rust::ClientConfig) {
    config.set_use_tls(options.tls.is_some());
    let Some(tls) = &options.tls else { return };
    let text = |path: &std::path::Path| Some(path.to_string_lossy().into_owned());
    let mut settings = config.tls_config().clone();
    settings.config_file = String::new();
    settings.test_mode_enable = false;
    settings.client.auth_server = !tls.insecure_accept_any_certificate;
    settings.client.trust_cert_path = tls.ca_file.as_deref().and_then(text);
    settings.client.cert_path = tls.client_certificate.as_ref().and_then(|own| text(&own.certificate_file));
    settings.client.key_path = tls.client_certificate.as_ref().and_then(|own| text(&own.key_file));
    config.set_tls_config(settings);
}

#[cfg(feature = "tls")]
mod with_tls {
    use super::Stream;
    use crate::rocketmq::options::{ClientCertificate, TlsOptions};
    use onceflow_types::{Error, Result};
    use std::path::Path;
    use std::sync::Arc;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

    pub(in crate::rocketmq) type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

    pub(super) fn connector(options: &TlsOptions) -> Result<TlsConnector> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Error::invalid("no TLS version to use").with_source(error))?;
        let builder = if options.insecure_accept_any_certificate {
            tracing::warn!("insecure_accept_any_certificate is on: anybody on the way can read and change everything");
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            builder.with_root_certificates(roots(options.ca_file.as_deref())?)
        };
        let config = match &options.client_certificate {
            None => builder.with_no_client_auth(),
            Some(ClientCertificate { certificate_file, key_file }) => {
                let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| unreadable(key_file, error))?;
                let refused = |error| Error::invalid("client certificate cannot be used").with_source(error);
                builder.with_client_auth_cert(certificates(certificate_file)?, key).map_err(refused)?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(ca_file: Option<&Path>) -> Result<RootCertStore> {
        let found = match ca_file {
            Some(file) => certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(found);
        if roots.is_empty() || (ca_file.is_some() && unusable > 0) {
            let file = ca_file.map_or_else(|| "the system's".to_owned(), |file| file.display().to_string());
            return Err(Error::invalid(format!("no certificates to trust: file={file} unusable={unusable}")));
        }
        Ok(roots)
    }

    fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(file, error))?;
        certificates.collect::<Result<_, _>>().map_err(|error| unreadable(file, error))
    }

    fn unreadable(file: &Path, error: rustls::pki_types::pem::Error) -> Error {
        Error::invalid(format!("PEM file cannot be read: file={}", file.display())).with_source(error)
    }

    pub(super) async fn shake_hands(connector: &TlsConnector, address: &str, socket: TcpStream) -> Result<Stream> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Error::invalid(format!("no name for TLS: address={address}")).with_source(error))?;
        match connector.connect(name, socket).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(error) => Err(refused(address, error)),
        }
    }

    /// Another try cannot help against a certificate that is refused; against everything else it may.
    fn refused(address: &str, error: std::io::Error) -> Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let told = match cause {
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
                Error::invalid(format!("certificate of the server is refused: address={address}"))
            }
            _ => Error::retry(format!("no TLS with the server: address={address}")),
        };
        told.with_source(error)
    }

    /// Takes every certificate; signatures of the handshake are still checked.
    #[derive(Debug)]
    struct Anybody(Arc<CryptoProvider>);

    impl rustls::client::danger::ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
