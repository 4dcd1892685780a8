//! What must never reach an endpoint that it was not meant for.
//!
//! Sources: openai/openai-openapi openapi.json; anthropics/anthropic-sdk-python
//! src/anthropic/_client.py; googleapis/python-genai google/genai/_api_client.py;
//! openai/openai-python src/openai/lib/azure.py; envoyproxy/ai-gateway
//! internal/backendauth/aws.go.

/// Request headers, in lower case: those of providers, and of the gateways that stand before them. Some carry
/// no secret but name the account: a request that goes elsewhere must not tell whose it was, and the other
/// side would refuse it.
pub(super) const HEADERS: &[&str] = &[
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "x-auth-token",
    "x-forwarded-authorization",
    "cf-aig-authorization",
    "cf-access-client-secret",
    "helicone-auth",
    "x-portkey-api-key",
    "x-litellm-api-key",
    "x-goog-iam-authorization-token",
    "x-goog-user-project",
    "cookie2",
    "x-amz-security-token",
    "proxy-authorization",
    "cookie",
    "openai-organization",
    "openai-project",
];

/// Parameters of the query.
pub(super) const QUERY: &[&str] = &[
    "key",
    "access_token",
    "X-Amz-Signature",
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "api_key",
    "api-key",
    "subscription-key",
    "oauth_token",
    "token",
    "sig",
    "X-Goog-Signature",
];
