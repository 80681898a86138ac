//! A scripted API server on a port of its own: what a list answers, and what a watch brings.

use std::{convert::Infallible, hash::Hash, net::SocketAddr, sync::Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Uri, header::ACCEPT},
    routing::get,
};
use futures::stream;
use serde_json::{Value, json};
use telemetry::Registry;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tracecontext::{RemoteContext, traceparent};

use super::*;

const TRACEPARENT: &str = "tracing.k8s.io/traceparent";
const TRACESTATE: &str = "tracing.k8s.io/tracestate";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const LONG: Duration = Duration::from_secs(60);

type Line = Result<Bytes, Infallible>;

struct Script {
    listed: Vec<Value>,
    /// Hands each watch to the test as it is asked for.
    watches: mpsc::UnboundedSender<mpsc::UnboundedSender<Line>>,
}

struct ApiServer {
    address: SocketAddr,
    watches: mpsc::UnboundedReceiver<mpsc::UnboundedSender<Line>>,
    /// How often an owner was asked for.
    asked: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl ApiServer {
    async fn start(address: SocketAddr, listed: Vec<Value>) -> Self {
        Self::with_owners(address, listed, Vec::new()).await
    }

    /// The same, with other objects by their paths.
    async fn with_owners(
        address: SocketAddr,
        listed: Vec<Value>,
        owners: Vec<(&'static str, Value)>,
    ) -> Self {
        let (sender, watches) = mpsc::unbounded_channel();
        let asked = Arc::default();
        let script = Arc::new(Mutex::new(Script { listed, watches: sender }));
        let mut router = Router::new().route("/api/v1/pods", get(pods)).with_state(script);
        for (path, owner) in owners {
            let asked: Arc<AtomicU32> = Arc::clone(&asked);
            let answer = async move |headers: HeaderMap| {
                let accepted = headers[ACCEPT].to_str().unwrap();
                assert!(
                    accepted.contains("as=PartialObjectMetadata"),
                    "a whole owner is requested: {accepted}"
                );
                asked.fetch_add(1, Ordering::Relaxed);
                owner.to_string()
            };
            router = router.route(path, get(answer));
        }
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, watches, asked, task }
    }
}

async fn pods(State(script): State<Arc<Mutex<Script>>>, uri: Uri, headers: HeaderMap) -> Body {
    let accepted = headers.get(ACCEPT).map_or("", |accepted| accepted.to_str().unwrap());
    let script = script.lock().unwrap();
    let whole = !accepted.contains("as=PartialObjectMetadata");
    assert_eq!(whole, script.listed.iter().any(|pod| pod["spec"].is_object()), "asked for {accepted}");
    let parameters: Vec<_> = uri.query().unwrap().split('&').collect();
    assert!(parameters.contains(&"fieldSelector=spec.nodeName%3D"), "{uri}");
    if !parameters.contains(&"watch=true") {
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": script.listed});
        return list.to_string().into();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    script.watches.send(sender).unwrap();
    let lines = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Body::from_stream(lines)
}

fn pod(uid: &str, annotations: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": uid, "namespace": "default", "uid": uid, "resourceVersion": "2", "annotations": annotations,
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}]}})
}

fn event(kind: &str, pod: &Value) -> Line {
    Ok(format!("{}\n", json!({"type": kind, "object": pod})).into())
}

fn options(arguments: &[&str]) -> Options {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }
    <Command as clap::Parser>::parse_from([&["schedspan"], arguments].concat()).options
}

async fn contexts(address: SocketAddr) -> (PodContexts, Registry) {
    contexts_with(address, &[], Vec::new()).await
}

async fn contexts_with(
    address: SocketAddr,
    arguments: &[&str],
    selectors: Vec<Selector>,
) -> (PodContexts, Registry) {
    let (contexts, registry) = unneeded(address, arguments, selectors).await;
    contexts.need();
    (contexts, registry)
}

/// Contexts before [`PodContexts::need`].
async fn unneeded(
    address: SocketAddr,
    arguments: &[&str],
    selectors: Vec<Selector>,
) -> (PodContexts, Registry) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("schedspan-test-{}-{count}.kubeconfig", std::process::id()));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}]});
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let registry = Registry::default();
    let options = Options { kubeconfig: Some(path.clone()), ..options(arguments) };
    let contexts = PodContexts::start(&options, selectors, false, Metrics::new(&registry)).await.unwrap();
    std::fs::remove_file(path).unwrap();
    (contexts, registry)
}

/// The only context of a Pod.
async fn context(contexts: &PodContexts, uid: &str, wait: Duration) -> Option<RemoteContext> {
    let causes = contexts.lookup(uid, wait).await.causes;
    assert!(causes.len() <= 1, "{causes:?}");
    causes.into_iter().next().map(|link| link.context)
}

/// Waits for a line of the metrics to show.
async fn until(registry: &Registry, line: &str) {
    while !registry.encode().lines().any(|found| found == line) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[tokio::test]
async fn pods_are_watched_from_when_their_contexts_are_needed() {
    let server = ApiServer::start(any_port(), vec![pod("a", &json!({TRACEPARENT: PARENT}))]).await;
    let (contexts, registry) = unneeded(server.address, &[], Vec::new()).await;
    assert_eq!(context(&contexts, "a", Duration::from_millis(200)).await, None);
    assert!(
        registry.encode().contains("schedspan_context_watch_up 1\n"),
        "an alert would say that there are no links"
    );
    contexts.need();
    assert_eq!(context(&contexts, "a", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_listed_pod_has_its_context() {
    let listed = vec![pod("a", &json!({TRACEPARENT: PARENT, TRACESTATE: "rojo=1"})), pod("b", &json!({}))];
    let server = ApiServer::start(any_port(), listed).await;
    let (contexts, registry) = contexts(server.address).await;
    let found = context(&contexts, "a", LONG).await.unwrap();
    assert_eq!(found, RemoteContext { trace_state: "rojo=1".into(), ..traceparent(PARENT).unwrap() });
    assert_eq!(context(&contexts, "b", LONG).await, None);
    assert_eq!(context(&contexts, "c", Duration::from_millis(20)).await, None);
    let text = registry.encode();
    for result in ["found", "none", "unknown"] {
        assert!(
            text.contains(&format!("schedspan_context_lookups_total{{result=\"{result}\"}} 1\n")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn after_the_first_list_its_pods_are_known_at_once() {
    let server = ApiServer::start(any_port(), vec![pod("a", &json!({TRACEPARENT: PARENT}))]).await;
    let (contexts, _) = contexts(server.address).await;
    contexts.listed(LONG).await;
    assert_eq!(context(&contexts, "a", Duration::ZERO).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn an_api_server_that_refuses_connections_is_not_waited_for() {
    let server = ApiServer::start(any_port(), vec![]).await;
    server.task.abort();
    let _cancelled = server.task.await;
    let (contexts, _) = contexts(server.address).await;
    contexts.listed(Duration::MAX).await;
}

#[tokio::test]
async fn a_lookup_waits_for_the_watch_to_bring_the_pod() {
    let mut server = ApiServer::start(any_port(), vec![]).await;
    let (contexts, _) = contexts(server.address).await;
    let watch = server.watches.recv().await.unwrap();
    let lookup = tokio::spawn({
        let contexts = contexts.clone();
        async move { context(&contexts, "a", LONG).await }
    });
    watch.send(event("ADDED", &pod("b", &json!({})))).unwrap();
    watch.send(event("ADDED", &pod("a", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(lookup.await.unwrap(), traceparent(PARENT).ok());
    // Bound at once: to the selector the Pod is gone.
    watch.send(event("DELETED", &pod("c", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(context(&contexts, "c", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_refused_annotation_is_counted_once_a_pod() {
    let mut server = ApiServer::start(any_port(), vec![pod("a", &json!({TRACEPARENT: "junk"}))]).await;
    let (contexts, registry) = contexts(server.address).await;
    assert_eq!(context(&contexts, "a", LONG).await, None);
    let watch = server.watches.recv().await.unwrap();
    watch.send(event("MODIFIED", &pod("a", &json!({TRACEPARENT: "junk"})))).unwrap();
    watch.send(event("ADDED", &pod("b", &json!({TRACEPARENT: PARENT, TRACESTATE: "junk"})))).unwrap();
    assert_eq!(
        context(&contexts, "b", LONG).await,
        traceparent(PARENT).ok(),
        "the link stays without its tracestate"
    );
    until(&registry, "schedspan_annotations_refused_total{reason=\"tracestate_syntax\"} 1").await;
    until(&registry, "schedspan_annotations_refused_total{reason=\"syntax\"} 1").await;
}

#[tokio::test]
async fn lookups_do_not_wait_for_an_api_server_that_is_down_and_work_when_it_is_back() {
    let server = ApiServer::start(any_port(), vec![]).await;
    let address = server.address;
    server.task.abort();
    let _cancelled = server.task.await;
    let (contexts, registry) = contexts(address).await;
    // Answers although nothing ever comes: the second refused connection ends the wait.
    assert_eq!(context(&contexts, "a", Duration::MAX).await, None);
    until(&registry, "schedspan_context_watch_up 0").await;
    let _server = ApiServer::start(address, vec![pod("a", &json!({TRACEPARENT: PARENT}))]).await;
    until(&registry, "schedspan_context_watch_up 1").await;
    assert_eq!(context(&contexts, "a", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_broken_watch_is_resumed() {
    let mut server = ApiServer::start(any_port(), vec![]).await;
    let (contexts, registry) = contexts(server.address).await;
    let watch = server.watches.recv().await.unwrap();
    watch.send(Ok("this is no event\n".into())).unwrap();
    until(&registry, "schedspan_context_watch_up 0").await;
    drop(watch);
    let watch = server.watches.recv().await.unwrap();
    until(&registry, "schedspan_context_watch_up 1").await;
    watch.send(event("ADDED", &pod("a", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(context(&contexts, "a", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let error = PodContexts::start(
        &options(&["--kubeconfig", "/nowhere/config"]),
        Vec::new(),
        false,
        Metrics::new(&Registry::default()),
    )
    .await
    .unwrap_err()
    .to_string();
    assert!(error.contains("`/nowhere/config`") && error.contains("give the path"), "{error}");
}

#[tokio::test]
async fn several_contexts_are_several_links_with_their_keys_and_selected_baggage_is_attributes() {
    let other = PARENT.replace("4bf9", "aaaa");
    let annotations = json!({TRACEPARENT: PARENT, "tracing.k8s.io/traceparent.0": other,
        "tracing.k8s.io/baggage": "user=ann%20b,secret=x", "trace.kubernetes.io/initial": "0af7651916cd43dd8448eb211c80319c"});
    let server = ApiServer::start(any_port(), vec![pod("a", &annotations)]).await;
    let arguments = ["--context-mode", "parent", "--context-baggage", "absent,user"];
    let (contexts, _) = contexts_with(server.address, &arguments, Vec::new()).await;
    let origin = contexts.lookup("a", LONG).await;
    let cause = |value: &str, annotation: &str| Link {
        context: traceparent(value).unwrap(),
        relation: Relation::Cause { annotation: annotation.to_owned(), owner: None },
    };
    assert_eq!(
        origin,
        Origin {
            causes: vec![cause(PARENT, TRACEPARENT), cause(&other, "tracing.k8s.io/traceparent.0")],
            parent: true,
            attributes: vec![
                ("user", "ann b".into()),
                (attributes::INITIAL, "0af7651916cd43dd8448eb211c80319c".into()),
            ],
            selected: Some(0),
        }
    );
}

/// A Pod, or an owner, with a controller.
fn owned(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"},
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true},
    ]);
    object
}

#[tokio::test]
async fn a_pod_without_a_context_has_that_of_its_nearest_owner_asked_for_once() {
    let none = json!({});
    let of_set =
        |uid: &str, annotations: &Value| owned(pod(uid, annotations), "apps/v1", "ReplicaSet", "set");
    let pods = vec![
        of_set("a", &none),
        of_set("b", &none),
        of_set("c", &json!({TRACEPARENT: PARENT.replace("4bf9", "aaaa")})),
        owned(pod("d", &none), "apps/v1", "ReplicaSet", "another"),
        owned(pod("e", &none), "example.com/v1", "ReplicaSet", "set"),
    ];
    let owners = vec![
        (
            "/apis/apps/v1/namespaces/default/replicasets/set",
            owned(pod("set", &none), "apps/v1", "Deployment", "web"),
        ),
        ("/apis/apps/v1/namespaces/default/deployments/web", pod("web", &json!({TRACEPARENT: PARENT}))),
        // Another object of that name: it did not make the Pod.
        ("/apis/apps/v1/namespaces/default/replicasets/another", pod("new", &json!({TRACEPARENT: PARENT}))),
    ];
    let server = ApiServer::with_owners(any_port(), pods.clone(), owners).await;
    let (contexts, registry) = contexts_with(server.address, &["--context-owners"], Vec::new()).await;
    contexts.listed(LONG).await;
    for uid in ["a", "b"] {
        let relation =
            Relation::Cause { annotation: TRACEPARENT.to_owned(), owner: Some("Deployment/web".to_owned()) };
        let link = Link { context: traceparent(PARENT).unwrap(), relation };
        assert_eq!(contexts.lookup(uid, LONG).await.causes, [link]);
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 2);
    let own = context(&contexts, "c", LONG).await;
    assert_eq!(own, traceparent(&PARENT.replace("4bf9", "aaaa")).ok());
    for uid in ["d", "e"] {
        assert_eq!(context(&contexts, uid, LONG).await, None);
    }
    until(&registry, "schedspan_context_lookups_total{result=\"owner\"} 2").await;

    let asked = server.asked.load(Ordering::Relaxed);
    let (contexts, _) = contexts_with(server.address, &[], Vec::new()).await;
    assert_eq!(context(&contexts, "a", LONG).await, None, "no owner is requested");
    assert_eq!(server.asked.load(Ordering::Relaxed), asked);
}

#[tokio::test]
async fn an_owner_that_may_not_be_read_stops_nothing() {
    // There is no such path: 404, as if it were gone, and an API server that answers with something else.
    let pods = vec![
        owned(pod("a", &json!({})), "batch/v1", "Job", "gone"),
        owned(pod("b", &json!({})), "batch/v1", "Job", "odd"),
    ];
    let owners = vec![("/apis/batch/v1/namespaces/default/jobs/odd", json!("not an object"))];
    let server = ApiServer::with_owners(any_port(), pods, owners).await;
    let (contexts, registry) = contexts_with(server.address, &["--context-owners"], Vec::new()).await;
    for uid in ["a", "b"] {
        assert_eq!(context(&contexts, uid, LONG).await, None);
    }
    until(&registry, "schedspan_context_lookups_total{result=\"none\"} 2").await;
}

#[tokio::test]
async fn which_selectors_a_pod_satisfies_is_remembered_and_whole_pods_are_read_for_their_priority_class() {
    let label = |value: Option<&str>| Selector::Label("app".to_owned(), value.map(str::to_owned));
    let labelled = |uid: &str, labels: Value| {
        let mut pod = pod(uid, &json!({}));
        pod["metadata"]["labels"] = labels;
        pod
    };
    let mut urgent = labelled("b", json!({"app": "db"}));
    urgent["spec"] = json!({"priorityClassName": "high", "containers": []});
    let pods = vec![labelled("a", json!({"app": "web"})), urgent, labelled("c", json!({"tier": "app"}))];
    let server = ApiServer::start(any_port(), pods.clone()).await;
    let selectors = vec![label(None), label(Some("web")), Selector::PriorityClass("high".to_owned())];
    let (contexts, _) = contexts_with(server.address, &[], selectors).await;
    for (uid, selected) in [("a", Some(0b011)), ("b", Some(0b101)), ("c", Some(0))] {
        assert_eq!(contexts.lookup(uid, LONG).await.selected, selected, "{uid}");
    }
    assert_eq!(contexts.lookup("d", Duration::from_millis(20)).await.selected, None);

    let server = ApiServer::start(any_port(), pods[..1].to_vec()).await;
    let (contexts, _) = contexts_with(server.address, &[], vec![label(Some("web"))]).await;
    assert_eq!(contexts.lookup("a", LONG).await.selected, Some(1));
}

#[tokio::test]
async fn what_pods_carry_is_bounded_in_bytes() {
    let (contexts, _) = contexts(any_port()).await;
    let state = format!("a={0},b={0}", "x".repeat(250));
    let annotations: serde_json::Map<_, _> = (0..=annotations::MAX_CAUSES)
        .flat_map(|number| {
            let parent = PARENT.replace("4bf9", &format!("4bf{number}"));
            [
                (format!("{TRACEPARENT}.{number}"), json!(parent)),
                (format!("{TRACESTATE}.{number}"), json!(state)),
            ]
        })
        .collect();
    let pods = 10_000;
    for number in 0..pods {
        let pod = pod(&number.to_string(), &annotations.clone().into());
        let pod: Pod<false> = serde_json::from_value(pod).unwrap();
        contexts.0.learn(pod.meta(), None, Some(pod.terms()));
    }
    let kept = contexts.0.pods.len();
    assert!(kept < pods && kept > 1_000, "{kept} Pods with four KiB each");
    assert!(contexts.0.pods.weight() <= MAX_BYTES);
}

#[tokio::test]
async fn those_that_left_last_are_known_and_all_that_wait() {
    let (contexts, _) = contexts(any_port()).await;
    let object = |uid: String| ObjectMeta { uid: Some(uid), ..ObjectMeta::default() };
    contexts.0.learn(&object("waits".to_owned()), None, None);
    for number in 0..=MAX_LEFT {
        contexts.learn(&object(number.to_string()), None);
    }
    let known = |uid: &str| contexts.annotated(uid).is_some();
    assert_eq!(["waits", "0", "1", &MAX_LEFT.to_string()].map(known), [true, false, true, true]);
}

#[tokio::test]
async fn those_that_left_are_forgotten_after_a_while_unless_lifecycles_are_followed() {
    for follows in [false, true] {
        let (contexts, _) = contexts(any_port()).await;
        if follows {
            contexts.follow();
        }
        let began = Instant::now();
        for (uid, seconds) in [("a", 0), ("b", 60), ("c", 121)] {
            let object = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
            contexts.0.learn(&object, None, None);
            contexts.0.leaves(&object, began + Duration::from_secs(seconds));
        }
        let known = |uid: &str| contexts.annotated(uid).is_some();
        assert_eq!(["a", "b", "c"].map(known), [follows, true, true]);
    }
}

/// A Pod with a volume claim and a host port.
fn demanding(uid: &str, annotations: &Value) -> Value {
    let mut pod = pod(uid, annotations);
    pod["spec"] = json!({
        "containers": [{ "ports": [{ "hostPort": 80 }] }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "secret" } }],
    });
    pod
}

#[tokio::test]
async fn the_kinds_of_terms_in_the_spec_are_an_attribute_and_their_values_are_not() {
    let mut plain = pod("c", &json!({}));
    plain["spec"] = json!({ "containers": [] });
    let annotated = json!({ TRACEPARENT: PARENT });
    let listed = vec![demanding("a", &json!({})), demanding("b", &annotated), plain];
    let server = ApiServer::start(any_port(), listed).await;
    // Whole Pods are read for it.
    let selectors = vec![Selector::PriorityClass("high".to_owned())];
    let (contexts, _) = contexts_with(server.address, &[], selectors).await;
    let names = ["volume claims", "host ports"].map(str::to_owned).to_vec();
    let expected = (attributes::POD_TERMS, AttributeValue::Strings(names));
    let found = async |uid: &str| contexts.lookup(uid, LONG).await;
    assert_eq!(found("a").await.attributes, std::slice::from_ref(&expected));
    let annotated = found("b").await;
    assert_eq!((annotated.attributes.as_slice(), annotated.causes.len()), (&[expected.clone()][..], 1));
    assert_eq!(found("c").await, Origin { selected: Some(0), ..Origin::default() });

    // The watch of all Pods does not read them.
    contexts.learn(&ObjectMeta { uid: Some("a".to_owned()), ..ObjectMeta::default() }, None);
    assert_eq!(found("a").await.attributes, [expected]);
    contexts.learn(&ObjectMeta { uid: Some("new".to_owned()), ..ObjectMeta::default() }, None);
    assert_eq!(found("new").await.attributes, []);
}

#[test]
fn terms_take_no_more_room_in_the_cache() {
    /// Bytes of a Pod in a cache with these keys and values.
    fn bytes<K: Hash + Eq + Clone, V: Default + Clone>(key: impl Fn(u64) -> K) -> usize {
        let pods = 1_000;
        let cache = Cache::new(CAPACITY);
        (0..pods).for_each(|number| cache.insert(key(number), V::default()));
        cache.memory_used().entries / cache.len()
    }
    let with = bytes::<Key, Entry>(|number| (number, number));
    // The alignment of a key that is one word of 16 bytes would cost more.
    let without = bytes::<u128, Option<Arc<Known>>>(u128::from);
    assert!(with <= without && with as u64 <= POD_BYTES, "{with} and {without} bytes");
}
