// A control plane, around the snapshot cache of go-control-plane. It prints its address, and then one line for each event:
//
//	open ID, close ID            a stream began or ended
//	first ID TYPE VERSION NAMES  the first request of a stream for a type
//	ack TYPE VERSION             a client accepted a response
//	nack TYPE VERSION: REASON    a client refused one, and still uses this version
//	done COMMAND                 the answer to a command
//
// Commands on standard input, one in each line:
//
//	set VERSION JSON   serves these resources: an object with lists of resources by type
//	stop               closes the port and all connections
//	start              opens the port again
//	silence            leaves all connections open, but neither reads nor writes on them from now on
//
// The program ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
)

// everyone is the key of the only snapshot.
type everyone struct{}

func (everyone) ID(*core.Node) string { return "" }

// events prints one line at a time.
type events struct{ lock sync.Mutex }

func (e *events) print(format string, args ...any) {
	e.lock.Lock()
	defer e.lock.Unlock()
	fmt.Printf(strings.ReplaceAll(format, "\n", " ")+"\n", args...)
}

// muted is a connection that may fall silent, as behind a broken network.
type muted struct {
	net.Conn
	silent chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (m *muted) await() error {
	<-m.closed
	return net.ErrClosed
}

func (m *muted) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	select {
	case <-m.silent:
		return 0, m.await()
	default:
		return n, err
	}
}

func (m *muted) Write(p []byte) (int, error) {
	select {
	case <-m.silent:
		return 0, m.await()
	default:
		return m.Conn.Write(p)
	}
}

// Close of a silent connection sends nothing to the peer.
func (m *muted) Close() error {
	m.once.Do(func() { close(m.closed) })
	select {
	case <-m.silent:
		return nil
	default:
		return m.Conn.Close()
	}
}

// network is a listener whose connections can fall silent.
type network struct {
	net.Listener
	lock  sync.Mutex
	conns []*muted
}

func (n *network) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &muted{Conn: conn, silent: make(chan struct{}), closed: make(chan struct{})}
	n.lock.Lock()
	defer n.lock.Unlock()
	n.conns = append(n.conns, m)
	return m, nil
}

func (n *network) silence() {
	n.lock.Lock()
	defer n.lock.Unlock()
	for _, conn := range n.conns {
		close(conn.silent)
	}
	n.conns = nil
}

// plane is the control plane.
type plane struct {
	events  events
	cache   cache.SnapshotCache
	server  server.Server
	grpc    *grpc.Server
	network *network
	address string
}

func short(url string) string { return url[strings.LastIndex(url, ".")+1:] }

func (p *plane) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc: func(_ context.Context, id int64, _ string) error {
			p.events.print("open %d", id)
			return nil
		},
		StreamClosedFunc: func(id int64, _ *core.Node) { p.events.print("close %d", id) },
		StreamRequestFunc: func(id int64, request *discovery.DiscoveryRequest) error {
			switch {
			case request.ErrorDetail != nil:
				reason := strings.ReplaceAll(request.ErrorDetail.Message, "\n", " ")
				p.events.print("nack %s %s: %s", short(request.TypeUrl), request.VersionInfo, reason)
			case request.ResponseNonce != "":
				p.events.print("ack %s %s", short(request.TypeUrl), request.VersionInfo)
			default:
				p.events.print("first %d %s %s %s", id, short(request.TypeUrl), request.VersionInfo, strings.Join(request.ResourceNames, ","))
			}
			return nil
		},
	}
}

func (p *plane) start() error {
	var err error
	if p.address == "" {
		p.address = "127.0.0.1:0"
	}
	// The port may be taken by an outgoing connection for a moment.
	for range 50 {
		var inner net.Listener
		if inner, err = net.Listen("tcp", p.address); err == nil {
			p.network = &network{Listener: inner}
			p.address = inner.Addr().String()
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	p.grpc = grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond}))
	discovery.RegisterAggregatedDiscoveryServiceServer(p.grpc, p.server)
	go func(server *grpc.Server, network *network) { _ = server.Serve(network) }(p.grpc, p.network)
	return nil
}

func (p *plane) set(version, text string) error {
	var lists map[string][]json.RawMessage
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return err
	}
	kinds := map[string]func() (string, proto.Message){
		"listeners": func() (string, proto.Message) { return resource.ListenerType, new(listener.Listener) },
		"routes":    func() (string, proto.Message) { return resource.RouteType, new(route.RouteConfiguration) },
		"clusters":  func() (string, proto.Message) { return resource.ClusterType, new(cluster.Cluster) },
		"endpoints": func() (string, proto.Message) { return resource.EndpointType, new(endpoint.ClusterLoadAssignment) },
		"secrets":   func() (string, proto.Message) { return resource.SecretType, new(tls.Secret) },
	}
	all := make(map[resource.Type][]types.Resource)
	for name, list := range lists {
		kind, ok := kinds[name]
		if !ok {
			return fmt.Errorf("there is no type %q", name)
		}
		for _, raw := range list {
			url, message := kind()
			if err := protojson.Unmarshal(raw, message); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[url] = append(all[url], message)
		}
	}
	snapshot, err := cache.NewSnapshot(version, all)
	if err != nil {
		return err
	}
	return p.cache.SetSnapshot(context.Background(), "", snapshot)
}

func (p *plane) command(line string) error {
	words := strings.SplitN(line, " ", 3)
	switch {
	case words[0] == "set" && len(words) == 3:
		return p.set(words[1], words[2])
	case line == "stop":
		p.grpc.Stop()
		return nil
	case line == "start":
		return p.start()
	case line == "silence":
		p.network.silence()
		return nil
	default:
		return errors.New("unknown command")
	}
}

func main() {
	log.SetFlags(0)
	p := &plane{cache: cache.NewSnapshotCache(false, everyone{}, nil)}
	p.server = server.NewServer(context.Background(), p.cache, p.callbacks())
	if err := p.start(); err != nil {
		log.Fatal(err)
	}
	p.events.print("%s", p.address)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		line := lines.Text()
		if err := p.command(line); err != nil {
			log.Fatalf("%.80s: %v", line, err)
		}
		p.events.print("done %s", strings.SplitN(line, " ", 2)[0])
	}
}
