use std::time::Duration;
use backstop::testing::*;
use backstop::*;
use tower::{ServiceBuilder, ServiceExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use bytes::Bytes;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn smoke() {
    let service = ScriptedService::new([
        Outcome::status(429).header("retry-after","3").body("{}"),
        Outcome::from(script::openai::error_first("server_error", None)),
        Outcome::from(script::openai::chat_stream("m", ["a","b"])),
    ]);
    let stack = ServiceBuilder::new()
        .layer(BackoffLayer::builder().jitter(Jitter::None).build().unwrap())
        .layer(ClassifyLayer::new())
        .service(service.clone());
    let start = Instant::now();
    let response = stack.oneshot(Request::post("http://x/v1/chat/completions").body(Full::new(Bytes::from("{}"))).unwrap()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(4));
    println!("{:?}", Verdict::of(&response));
    let cell = AttemptCell::of(&response).cloned().unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    println!("{} {:?}", String::from_utf8_lossy(&body), cell);
    assert_eq!(service.calls(), 3);
}
