//! TLS contexts: certificates, and the expected names of servers.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use frpc::{ClientTls, Pem, ServerTls};

use super::fields::{check_len, check_source, unpack};
use crate::protos::frpc::xds::v3::{
    self as proto, data_source::Specifier, secret, string_matcher::MatchPattern, subject_alt_name_matcher::SanType,
};

/// The TLS of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TlsRules {
    pub(crate) authorities: CertificateSource,
    pub(crate) identity: Option<TlsIdentity>,
    /// One of these rules must match a name in the certificate of the server. Any name matches without a rule.
    pub(crate) names: Vec<SanRule>,
    /// The name for SNI. Default: the host name of the endpoint, if it has one.
    pub(crate) sni: Option<String>,
}

/// The own certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TlsIdentity {
    pub(crate) certificate: CertificateSource,
    pub(crate) key: CertificateSource,
}

/// The place of certificates or of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum CertificateSource {
    /// A provider of the bootstrap.
    Provider(String),
    File(PathBuf),
    Inline(Vec<u8>),
    System,
    /// A secret of the control plane.
    Secret(Arc<str>),
}

/// Shows no content: it may be a key.
impl fmt::Debug for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(name) => f.debug_tuple("Provider").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Inline(text) => write!(f, "Inline({} bytes)", text.len()),
            Self::System => f.write_str("System"),
            Self::Secret(name) => f.debug_tuple("Secret").field(name).finish(),
        }
    }
}

/// A secret of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TlsSecret {
    Identity(TlsIdentity),
    Validation { authorities: CertificateSource, names: Vec<SanRule> },
}

/// The secrets of a TLS context, by name.
pub(crate) type TlsSecrets = BTreeMap<Arc<str>, Arc<TlsSecret>>;

impl TlsSecret {
    pub(super) fn read(secret: proto::Secret) -> Result<Self, String> {
        let name = secret.name;
        match secret.r#type {
            Some(secret::Type::TlsCertificate(one)) => {
                let identity = TlsIdentity::read("tls_certificate", &one)?;
                if let (CertificateSource::Inline(certificate), CertificateSource::Inline(key)) =
                    (&identity.certificate, &identity.key)
                {
                    let checked = ServerTls::new(Pem::bytes(certificate.clone()), Pem::bytes(key.clone()));
                    checked.map_err(|error| format!("tls_certificate is unusable: {error}"))?;
                }
                Ok(Self::Identity(identity))
            }
            Some(secret::Type::ValidationContext(context)) => {
                let Some(source) = &context.trusted_ca else {
                    return Err("validation_context needs trusted_ca".to_owned());
                };
                let authorities = read_data("trusted_ca", source)?;
                if let CertificateSource::Inline(text) = &authorities {
                    let checked = ClientTls::with_roots(Pem::bytes(text.clone()));
                    checked.map_err(|error| format!("trusted_ca is unusable: {error}"))?;
                }
                Ok(Self::Validation { authorities, names: read_names(&context)? })
            }
            None => Err(format!("the secret {name:?} is neither tls_certificate nor validation_context")),
        }
    }
}

impl TlsIdentity {
    /// Takes both from one place.
    fn of(source: CertificateSource) -> Self {
        Self { certificate: source.clone(), key: source }
    }

    fn read(field: &str, one: &proto::TlsCertificate) -> Result<Self, String> {
        let (Some(chain), Some(key)) = (&one.certificate_chain, &one.private_key) else {
            return Err(format!("{field} needs certificate_chain and private_key"));
        };
        let (certificate, key) = (read_data("certificate_chain", chain)?, read_data("private_key", key)?);
        Ok(Self { certificate, key })
    }
}

/// A rule for the names in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SanRule {
    pattern: SanPattern,
    ignores_case: bool,
    /// Matches only DNS names or only URIs. `None` for both.
    is_uri: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SanPattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
}

impl SanRule {
    /// Returns `true` if the rule matches a name in a certificate.
    pub(crate) fn matches(&self, name: &str, is_uri: bool) -> bool {
        if self.is_uri.is_some_and(|wanted| wanted != is_uri) {
            return false;
        }
        let lower = |text: &str| if self.ignores_case || !is_uri { text.to_ascii_lowercase() } else { text.to_owned() };
        let name = lower(name);
        match &self.pattern {
            // A wildcard in a certificate stands for one label.
            SanPattern::Exact(exact) => match name.strip_prefix("*.").filter(|_| !is_uri) {
                Some(parent) => lower(exact).split_once('.').is_some_and(|(_, rest)| rest == parent),
                None => name == lower(exact),
            },
            SanPattern::Prefix(prefix) => name.starts_with(&lower(prefix)),
            SanPattern::Suffix(suffix) => name.ends_with(&lower(suffix)),
            SanPattern::Contains(part) => name.contains(&lower(part)),
        }
    }
}

impl TlsRules {
    pub(super) fn read(socket: &proto::TransportSocket) -> Result<Self, String> {
        let config = socket.typed_config.as_ref().ok_or("transport_socket.typed_config is missing")?;
        let context: proto::UpstreamTlsContext = unpack("transport_socket", config, UPSTREAM)?;
        let common = context.common_tls_context.ok_or("common_tls_context is missing")?;
        let combined = common.combined_validation_context;
        let (validation, combined_provider, secret) = match combined {
            Some(combined) => (
                combined.default_validation_context,
                combined.validation_context_certificate_provider_instance,
                combined.validation_context_sds_secret_config,
            ),
            None => (common.validation_context, None, common.validation_context_sds_secret_config),
        };
        let provider = combined_provider.or(common.validation_context_certificate_provider_instance);
        let validation = validation.unwrap_or_default();
        // A secret replaces the authorities of the context that it is combined with.
        let authorities = if let Some(secret) = &secret {
            read_secret("validation_context_sds_secret_config", secret)?
        } else if let Some(instance) = &validation.ca_certificate_provider_instance {
            CertificateSource::Provider(instance.instance_name.clone())
        } else if let Some(instance) = provider {
            CertificateSource::Provider(instance.instance_name)
        } else if let Some(source) = &validation.trusted_ca {
            read_data("trusted_ca", source)?
        } else if validation.system_root_certs.is_some() {
            CertificateSource::System
        } else {
            return Err("the TLS context names no authorities to trust".to_owned());
        };
        let identity =
            common.tls_certificate_provider_instance.or(common.tls_certificate_certificate_provider_instance);
        let identity = match (identity, &*common.tls_certificate_sds_secret_configs, &*common.tls_certificates) {
            (Some(instance), [], _) => Some(TlsIdentity::of(CertificateSource::Provider(instance.instance_name))),
            (None, [secret], []) => Some(TlsIdentity::of(read_secret("tls_certificate_sds_secret_configs", secret)?)),
            (None, [], []) => None,
            (None, [], [one]) => Some(TlsIdentity::read("tls_certificates", one)?),
            _ => return Err("more than one certificate of the client is not supported".to_owned()),
        };
        let names = read_names(&validation)?;
        Ok(Self { authorities, identity, names, sni: Some(context.sni).filter(|name| !name.is_empty()) })
    }

    /// Returns the names of the secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Arc<str>> {
        let identity = self.identity.as_ref().map(|identity| &identity.certificate);
        [Some(&self.authorities), identity].into_iter().flatten().filter_map(|source| match source {
            CertificateSource::Secret(name) => Some(name),
            _ => None,
        })
    }

    /// Returns the rules with secrets in place of their names.
    ///
    /// # Errors
    ///
    /// A secret has a different type.
    pub(crate) fn with_secrets(&self, secrets: &TlsSecrets) -> Result<Self, String> {
        let mut rules = self.clone();
        if let CertificateSource::Secret(name) = &self.authorities {
            match secrets.get(name).map(|secret| &**secret) {
                Some(TlsSecret::Validation { authorities, names }) => {
                    rules.authorities = authorities.clone();
                    rules.names.extend(names.iter().cloned());
                }
                _ => return Err(format!("the secret {name:?} is no validation_context")),
            }
        }
        if let Some(TlsIdentity { certificate: CertificateSource::Secret(name), .. }) = &self.identity {
            match secrets.get(name).map(|secret| &**secret) {
                Some(TlsSecret::Identity(identity)) => rules.identity = Some(identity.clone()),
                _ => return Err(format!("the secret {name:?} is no tls_certificate")),
            }
        }
        Ok(rules)
    }
}

fn read_secret(field: &str, secret: &proto::SdsSecretConfig) -> Result<CertificateSource, String> {
    check_source(&format!("{field}.sds_config"), secret.sds_config.as_ref())?;
    match secret.name.is_empty() {
        true => Err(format!("{field}.name is empty")),
        false => Ok(CertificateSource::Secret(secret.name.as_str().into())),
    }
}

fn read_names(validation: &proto::CertificateValidationContext) -> Result<Vec<SanRule>, String> {
    let typed = validation.match_typed_subject_alt_names.iter().map(read_typed);
    let untyped = validation.match_subject_alt_names.iter().map(|matcher| read_matcher(matcher, None));
    let names = typed.chain(untyped).collect::<Result<Vec<_>, _>>()?;
    check_len("match_typed_subject_alt_names", &names, NAMES_MAX)?;
    Ok(names)
}

fn read_data(field: &str, source: &proto::DataSource) -> Result<CertificateSource, String> {
    match &source.specifier {
        Some(Specifier::Filename(path)) => Ok(CertificateSource::File(path.into())),
        Some(Specifier::InlineBytes(pem)) => Ok(CertificateSource::Inline(pem.clone())),
        Some(Specifier::InlineString(pem)) => Ok(CertificateSource::Inline(pem.clone().into_bytes())),
        Some(Specifier::EnvironmentVariable(_)) => Err(format!("{field} in an environment variable is not supported")),
        None => Err(format!("{field} is empty")),
    }
}

fn read_typed(matcher: &proto::SubjectAltNameMatcher) -> Result<SanRule, String> {
    let is_uri = match SanType::try_from(matcher.san_type) {
        Ok(SanType::Dns) => Some(false),
        Ok(SanType::Uri) => Some(true),
        _ => return Err(format!("the SAN type {} is not supported", matcher.san_type)),
    };
    read_matcher(matcher.matcher.as_ref().ok_or("a SAN matcher is missing")?, is_uri)
}

fn read_matcher(matcher: &proto::StringMatcher, is_uri: Option<bool>) -> Result<SanRule, String> {
    let pattern = match &matcher.match_pattern {
        Some(MatchPattern::Exact(text)) => SanPattern::Exact(text.clone()),
        Some(MatchPattern::Prefix(text)) => SanPattern::Prefix(text.clone()),
        Some(MatchPattern::Suffix(text)) => SanPattern::Suffix(text.clone()),
        Some(MatchPattern::Contains(text)) => SanPattern::Contains(text.clone()),
        Some(MatchPattern::SafeRegex(_) | MatchPattern::Custom(_)) | None => {
            return Err("a SAN matcher has no supported pattern: expected exact, prefix, suffix or contains".to_owned());
        }
    };
    let (SanPattern::Exact(text) | SanPattern::Prefix(text) | SanPattern::Suffix(text) | SanPattern::Contains(text)) =
        &pattern;
    match text.is_empty() {
        true => Err("a SAN matcher is empty".to_owned()),
        false => Ok(SanRule { pattern, ignores_case: matcher.ignore_case, is_uri }),
    }
}

const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
/// The maximum number of rules for names.
const NAMES_MAX: usize = 1_000;
