//! Many who say nothing, one who wants something: the one is served, and an agent keeps nobody else outside.

use tokio::time::timeout;

use super::*;

/// Much less than a connection that says nothing may last, and long for the slowest machine.
const PROMPT: Duration = Duration::from_secs(8);

/// Connections that say so much and no more. The kernel takes them whether or not we do.
async fn half_open(street: &Street, count: usize, says: &str) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(&street.address).await.unwrap();
        stream.write_all(says.as_bytes()).await.unwrap();
        all.push(stream);
    }
    all
}

/// Descriptors for both ends.
fn many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Without room for it no try is prompt; with it one may all the same be late on a machine that is busy with other things.
async fn is_served(street: &Street) {
    for _ in 0..3 {
        if let Ok((status, _)) = timeout(PROMPT, street.post(&street.agent, "/v1/tools/open:call", CALL)).await {
            return assert_eq!(status, 200);
        }
    }
    panic!("nobody was served within {PROMPT:?}, three times");
}

#[tokio::test]
async fn a_request_is_answered_while_three_hundred_or_a_thousand_others_hang() {
    many_files();
    let street = on_loopback().await;
    let head = "POST /v1/tools/open:call HTTP/1.1\r\nHost: ";
    for (count, says) in [(300, ""), (300, head), (1000, head)] {
        let crowd = half_open(&street, count, says).await;
        for _ in 0..3 {
            is_served(&street).await;
        }
        drop(crowd);
    }
    assert!(street.ran() >= 9);
}

#[tokio::test]
async fn a_request_is_answered_while_others_come_without_end() {
    many_files();
    let street = Arc::new(on_loopback().await);
    let (crowding, came) = (Arc::clone(&street), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&came);
    let crowd = tokio::spawn(async move {
        let mut open = std::collections::VecDeque::new();
        loop {
            open.extend(half_open(&crowding, 16, "GET /").await);
            count.fetch_add(16, Ordering::SeqCst);
            open.drain(..open.len().saturating_sub(600));
        }
    });
    while came.load(Ordering::SeqCst) < 600 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..5 {
        is_served(&street).await;
    }
    crowd.abort();
}

#[tokio::test]
async fn an_agent_that_fills_its_own_places_keeps_neither_people_nor_other_agents_outside() {
    many_files();
    let street = on_loopback().await;
    let other = read(street.dir.path(), "other.token");
    // Each asks a person, and so holds its place for as long as nobody answers; a second head follows and never ends.
    let ask = |token: &str| {
        format!(
            "POST /v1/tools/ask:call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{CALL}GET /v1",
            street.address,
            CALL.len()
        )
    };
    let idle =
        format!("GET /v1/tools HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {other}\r\n\r\nGET /v1", street.address);
    let busy = half_open(&street, 20, &ask(&street.agent)).await;
    let kept = half_open(&street, 600, &idle).await;
    is_served(&street).await;
    let (status, _) = timeout(PROMPT, street.get(&street.person, "/v1/approvals")).await.unwrap();
    assert_eq!(status, 200);
    let (status, _) = timeout(PROMPT, street.post(&other, "/v1/tools/open:call", CALL)).await.unwrap();
    assert_eq!(status, 200, "its own idle connections make room");
    drop((busy, kept));
}

#[tokio::test]
async fn the_end_waits_for_nobody_who_says_nothing_and_for_requests_a_moment() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let street = street_until(|_| Listen::parse("127.0.0.1:0").unwrap(), &[], async {
        assert!(stopped.await.is_ok());
    });
    let (street, serving) = street.await;
    let crowd = half_open(&street, 50, "GET /").await;
    is_served(&street).await;
    let waiting = half_open(
        &street,
        8,
        &format!(
            "POST /v1/tools/ask:call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{CALL}",
            street.address,
            street.agent,
            CALL.len()
        ),
    )
    .await;
    while street.approvals.list(false).unwrap().len() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.send(()).unwrap();
    // Two seconds for those on their way, whose person may still answer; the calls of this fixture wait for a minute.
    timeout(4 * PROMPT, serving).await.expect("it ends").unwrap();
    drop((crowd, waiting));
}
