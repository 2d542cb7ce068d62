//! TLS contexts: certificates, and the expected names of servers.

use std::path::PathBuf;

use super::fields::{check_len, unpack};
use crate::protos::frpc::xds::v3::{
    self as proto, data_source::Specifier, string_matcher::MatchPattern, subject_alt_name_matcher::SanType,
};

/// The TLS of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TlsRules {
    pub(crate) authorities: CertificateSource,
    /// The own certificate and its key.
    pub(crate) identity: Option<(CertificateSource, CertificateSource)>,
    /// One of these rules must match a name in the certificate of the server. Any name matches without a rule.
    pub(crate) names: Vec<SanRule>,
    /// The name for SNI. Default: the host name of the endpoint, if it has one.
    pub(crate) sni: Option<String>,
}

/// The place of certificates or of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CertificateSource {
    /// A provider of the bootstrap.
    Provider(String),
    File(PathBuf),
    Inline(Vec<u8>),
    System,
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
        let sds = !common.tls_certificate_sds_secret_configs.is_empty()
            || common.validation_context_sds_secret_config.is_some()
            || common
                .combined_validation_context
                .as_ref()
                .is_some_and(|one| one.validation_context_sds_secret_config.is_some());
        if sds {
            return Err(
                "secrets by SDS are not supported: name a certificate provider of the bootstrap or files".to_owned()
            );
        }
        let combined = common.combined_validation_context;
        let (validation, combined_provider) = match combined {
            Some(combined) => {
                (combined.default_validation_context, combined.validation_context_certificate_provider_instance)
            }
            None => (common.validation_context, None),
        };
        let provider = combined_provider.or(common.validation_context_certificate_provider_instance);
        let validation = validation.unwrap_or_default();
        let authorities = if let Some(instance) = validation.ca_certificate_provider_instance.or(provider) {
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
        let identity = match (identity, &*common.tls_certificates) {
            (Some(instance), _) => {
                let provider = CertificateSource::Provider(instance.instance_name);
                Some((provider.clone(), provider))
            }
            (None, []) => None,
            (None, [one]) => {
                let (Some(chain), Some(key)) = (&one.certificate_chain, &one.private_key) else {
                    return Err("tls_certificates needs certificate_chain and private_key".to_owned());
                };
                Some((read_data("certificate_chain", chain)?, read_data("private_key", key)?))
            }
            (None, _) => return Err("more than one of tls_certificates is not supported".to_owned()),
        };
        let typed = validation.match_typed_subject_alt_names.iter().map(read_typed);
        let untyped = validation.match_subject_alt_names.iter().map(|matcher| read_matcher(matcher, None));
        let names = typed.chain(untyped).collect::<Result<Vec<_>, _>>()?;
        check_len("match_typed_subject_alt_names", &names, NAMES_MAX)?;
        Ok(Self { authorities, identity, names, sni: Some(context.sni).filter(|name| !name.is_empty()) })
    }
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
