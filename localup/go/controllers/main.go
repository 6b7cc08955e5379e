// Command controllers runs the three controllers of kube-controller-manager that a control plane without nodes needs:
// garbage collection, namespaces, and aggregation of ClusterRoles. It builds in a fraction of the time of all of them.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	discoveryPeriod = 30 * time.Second
	namespaceResync = 5 * time.Minute
	garbageWorkers  = 20
	workers         = 10
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "credentials for the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		klog.ErrorS(err, "cannot start")
		os.Exit(1)
	}
}

// run starts the controllers and returns when ctx is done.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 2000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	typed := informers.NewSharedInformerFactory(client, 0)
	all := informerfactory.NewInformerFactory(typed, metadatainformer.NewSharedInformerFactory(objects, 0))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	started := make(chan struct{})

	garbage, err := garbagecollector.NewGarbageCollector(
		ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		return err
	}
	namespaces := namespace.NewNamespaceController(
		ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		typed.Core().V1().Namespaces(), namespaceResync, v1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(typed.Rbac().V1().ClusterRoles(), client.RbacV1())

	go garbage.Run(ctx, garbageWorkers, discoveryPeriod)
	go garbage.Sync(ctx, client.Discovery(), discoveryPeriod)
	go namespaces.Run(ctx, workers)
	go roles.Run(ctx, workers)
	all.Start(ctx.Done())
	close(started)
	<-ctx.Done()
	return nil
}
